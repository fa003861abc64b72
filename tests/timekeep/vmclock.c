/* SPDX-License-Identifier: MIT
 *
 * The device by which a hypervisor tells that the counter was disturbed, with a file in its place:
 * what is taken for the device, and what `fastclock publish` makes of it. The device itself is
 * tried in a virtual machine: tests/kernels.
 */
#define _GNU_SOURCE
#include "publisher.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* As Linux has it in include/uapi/linux/vmclock-abi.h, as far as the publisher looks at it. */
struct device {
    uint32_t magic, size;
    uint16_t version;
    uint8_t counter_id, time_type;
    uint32_t seq_count;
    uint64_t disruption_marker;
    uint64_t flags;
};

#if defined(__has_include)
#if __has_include(<linux/vmclock-abi.h>)
#include <linux/vmclock-abi.h>
#define SAME_PLACE(field)                                                                          \
    _Static_assert(offsetof(struct device, field) == offsetof(struct vmclock_abi, field), #field)
SAME_PLACE(magic);
SAME_PLACE(size);
SAME_PLACE(version);
SAME_PLACE(seq_count);
SAME_PLACE(disruption_marker);
_Static_assert(VMCLOCK_MAGIC == 0x4b4c4356, "magic");
#endif
#endif

enum { DEVICE_SIZE = 4096, NOBODY = 65534, DISRUPTIONS = 20 };

static const struct device sound = {
    .magic = 0x4b4c4356, /* "VCLK" */
    .size = DEVICE_SIZE,
    .version = 1,
    .counter_id = 0xff,
    .seq_count = 2,
    .disruption_marker = 1,
};

/* An empty /dev, for the publisher's device, beside an empty /run. */
static void own_dev(void) {
    own_run("");
    MUST(mount("tmpfs", "/dev", "tmpfs", 0, ""));
}

static void write_device(const struct device *what, size_t size) {
    const int file = open(FC_TIMEKEEP_VMCLOCK, O_RDWR | O_CREAT | O_TRUNC, 0444);
    MUST(file);
    MUST(write(file, what, size < sizeof *what ? size : sizeof *what));
    MUST(ftruncate(file, (off_t)size));
    close(file);
}

/* The hypervisor's side of the file. */
static volatile struct device *make_device(void) {
    volatile struct device *device;
    int file;
    write_device(&sound, DEVICE_SIZE);
    file = open(FC_TIMEKEEP_VMCLOCK, O_RDWR);
    MUST(file);
    device = mmap(NULL, DEVICE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(device != MAP_FAILED, "%s", strerror(errno));
    close(file);
    return device;
}

static void begin_update(volatile struct device *device) {
    __atomic_store_n(&device->seq_count, device->seq_count | 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void end_update(volatile struct device *device) {
    __atomic_store_n(&device->seq_count, device->seq_count + 1, __ATOMIC_RELEASE);
}

static void disrupt(volatile struct device *device) {
    begin_update(device);
    device->disruption_marker++;
    end_update(device);
}

/* ---- What is taken for the device -------------------------------------------------------------
 */

static void told_once(const void *argument) {
    static const uint64_t changes[] = {1, (uint64_t)1 << 32, UINT64_MAX};
    struct fc_timekeep_vmclock vmclock;
    volatile struct device *device;
    (void)argument;
    own_dev();
    device = make_device();
    fc_timekeep_vmclock_open(&vmclock, FC_TIMEKEEP_VMCLOCK);
    CHECK(vmclock.device, "the device is not taken");
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "disrupted from the start");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        begin_update(device);
        device->disruption_marker += changes[i];
        end_update(device);
        CHECK(fc_timekeep_vmclock_disrupted(&vmclock), "a change by %#" PRIx64 " is missed",
              changes[i]);
        CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "it is told twice");
    }
    begin_update(device);
    device->flags = 1;
    end_update(device);
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "another field's change is told");
}

/* A marker that is being written is not looked at; nothing waits for it, and it is not missed. */
static void being_written(const void *argument) {
    struct fc_timekeep_vmclock vmclock;
    volatile struct device *device;
    (void)argument;
    own_dev();
    device = make_device();
    fc_timekeep_vmclock_open(&vmclock, FC_TIMEKEEP_VMCLOCK);
    begin_update(device);
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "told before the marker has changed");
    device->disruption_marker++;
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "told before the marker is whole");
    end_update(device);
    CHECK(fc_timekeep_vmclock_disrupted(&vmclock), "missed");
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "told twice");
}

static void opened_while_written(const void *argument) {
    struct fc_timekeep_vmclock vmclock;
    volatile struct device *device;
    (void)argument;
    own_dev();
    device = make_device();
    begin_update(device);
    device->disruption_marker++; /* and it may be before or after this that the counter jumps */
    fc_timekeep_vmclock_open(&vmclock, FC_TIMEKEEP_VMCLOCK);
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "told before the marker is whole");
    end_update(device);
    CHECK(fc_timekeep_vmclock_disrupted(&vmclock), "missed");
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "told twice");
}

/* ---- What is not ------------------------------------------------------------------------------
 */

static void is_absent(void) {
}

static void has_wrong_magic(void) {
    struct device wrong = sound;
    wrong.magic++;
    write_device(&wrong, DEVICE_SIZE);
}

static void has_other_version(void) {
    struct device wrong = sound;
    wrong.version++;
    write_device(&wrong, DEVICE_SIZE);
}

static void has_no_room_for_marker(void) {
    struct device wrong = sound;
    wrong.size = offsetof(struct device, flags) - 1;
    write_device(&wrong, DEVICE_SIZE);
}

static void is_empty(void) {
    write_device(&sound, 0);
}

static void is_cut_in_magic(void) {
    write_device(&sound, 3);
}

static void is_cut_before_version(void) {
    write_device(&sound, offsetof(struct device, version));
}

static void is_directory(void) {
    MUST(mkdir(FC_TIMEKEEP_VMCLOCK, 0755));
}

static void is_fifo(void) {
    MUST(mkfifo(FC_TIMEKEEP_VMCLOCK, 0444));
}

static void is_socket(void) {
    const struct sockaddr_un address = {AF_UNIX, FC_TIMEKEEP_VMCLOCK};
    const int end = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(end);
    MUST(bind(end, (const struct sockaddr *)&address, sizeof address));
}

static void is_link_to_itself(void) {
    MUST(symlink(FC_TIMEKEEP_VMCLOCK, FC_TIMEKEEP_VMCLOCK));
}

static void is_device_without_memory(void) {
    MUST(mknod(FC_TIMEKEEP_VMCLOCK, S_IFCHR | 0444, 1 << 8 | 3)); /* null */
}

static void is_device_of_zeros(void) {
    MUST(mknod(FC_TIMEKEEP_VMCLOCK, S_IFCHR | 0444, 1 << 8 | 5)); /* zero */
}

/* A device whose driver is not there. */
static void is_device_without_driver(void) {
    MUST(mknod(FC_TIMEKEEP_VMCLOCK, S_IFCHR | 0444, 60 << 8)); /* for local use */
}

struct foreign {
    const char *claim, *publisher_claim;
    void (*make)(void);
};

static void not_taken(const void *argument) {
    const struct foreign *foreign = argument;
    struct fc_timekeep_vmclock vmclock;
    own_dev();
    foreign->make();
    fc_timekeep_vmclock_open(&vmclock, FC_TIMEKEEP_VMCLOCK);
    CHECK(!vmclock.device, "it is taken for the device");
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "it says that the counter was disturbed");
}

/* Root may read anything: it is another user to whom the device is closed. */
static void unreadable(const void *argument) {
    struct fc_timekeep_vmclock vmclock;
    (void)argument;
    own_dev();
    make_device();
    MUST(chmod(FC_TIMEKEEP_VMCLOCK, 0));
    MUST(setgid(NOBODY));
    MUST(setuid(NOBODY));
    fc_timekeep_vmclock_open(&vmclock, FC_TIMEKEEP_VMCLOCK);
    CHECK(!vmclock.device, "it is read");
    CHECK(!fc_timekeep_vmclock_disrupted(&vmclock), "it says that the counter was disturbed");
}

/* ---- fastclock publish ------------------------------------------------------------------------
 */

struct command {
    pid_t pid;
    FILE *says;
};

static struct command start_command(void) {
    struct command command = {0, NULL};
#ifdef FASTCLOCK_COMMAND
    const pid_t parent = getpid();
    int ends[2];
    MUST(pipe(ends));
    command.pid = fork();
    MUST(command.pid);
    if (command.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        MUST(dup2(ends[1], STDOUT_FILENO));
        close(ends[0]);
        execl(FASTCLOCK_COMMAND, FASTCLOCK_COMMAND, "publish", (char *)NULL);
        FAIL("%s cannot be run: %s", FASTCLOCK_COMMAND, strerror(errno));
    }
    close(ends[1]);
    command.says = fdopen(ends[0], "r");
    CHECK(command.says, "%s", strerror(errno));
#else
    CANNOT("this build has no command");
#endif
    return command;
}

static void command_says(const struct command *command, const char *words) {
    char line[512];
    CHECK(fgets(line, sizeof line, command->says), "it ends and does not say \"%s\"", words);
    CHECK(strstr(line, words), "it says \"%s\" and not \"%s\"", line, words);
}

/* What is said at the end: how many outages there were. */
static void stop_command(const struct command *command, unsigned outages) {
    char words[64];
    snprintf(words, sizeof words, " %u outages", outages);
    MUST(kill(command->pid, SIGTERM));
    command_says(command, words);
    MUST_EXIT_0(command->pid);
}

static void goes_on_without(const void *argument) {
    const struct foreign *foreign = argument;
    struct command command;
    own_dev();
    foreign->make();
    command = start_command();
    command_says(&command, "is in service");
    stop_command(&command, 0);
}

static atomic_bool stop_reading;
static atomic_ullong readings;

static void *read_on(void *unused) {
    uint64_t previous = 0;
    (void)unused;
    while (!atomic_load(&stop_reading)) {
        const uint64_t ns = read_near_kernel(FC_MONOTONIC);
        CHECK(ns >= previous, "went back by %" PRIu64 " ns", previous - ns);
        previous = ns;
        atomic_fetch_add(&readings, 1);
    }
    return NULL;
}

static void wait_for_readings(uint64_t more) {
    const uint64_t until = atomic_load(&readings) + more;
    while (atomic_load(&readings) < until) /* the claim's deadline ends it */
        sched_yield();
}

/* Where readers have their answers from while the publisher is held up after it has said that the
 * page is out of service. Where it came later to a stop, and served again, they leave for another
 * reason, the page's end. */
static int32_t reason_while_out(const struct command *command) {
    struct fc_info info;
    MUST(kill(command->pid, SIGSTOP));
    do {
        wait_for_readings(10);
        fc_get_info(&info, sizeof info);
    } while (info.serving == FC_SOURCE_TIMEKEEP);
    MUST(kill(command->pid, SIGCONT));
    return info.serving_reason;
}

static void out_and_back(const void *argument) {
    const unsigned disruptions = (unsigned)check_rounds(DISRUPTIONS);
    const struct fc_timekeep *page;
    volatile struct device *device;
    unsigned i = 0, turned_off = 0;
    struct command command;
    struct fc_info info;
    pthread_t reader;
    (void)argument;
    own_dev();
    device = make_device();
    command = start_command();
    command_says(&command, "is in service");
    page = wait_for_page();
    choose_timekeep(FC_TIMEKEEP_HOST);
    MUST(-pthread_create(&reader, NULL, read_on, NULL));
    /* Until a reader was there in time to be turned away; the claim's deadline ends it. */
    while (i < disruptions || turned_off == 0) {
        i++;
        disrupt(device);
        command_says(&command,
                     "out of service: the hypervisor says that the counter was disturbed");
        turned_off += reason_while_out(&command) == FC_REASON_OUT_OF_SERVICE;
        command_says(&command, "is in service");
        do {
            wait_for_readings(10);
            fc_get_info(&info, sizeof info);
        } while (info.serving != FC_SOURCE_TIMEKEEP);
        CHECK(page->outages == i, "%" PRIu64 " outages after %u disruptions", page->outages, i);
    }
    atomic_store(&stop_reading, true);
    pthread_join(reader, NULL);
    stop_command(&command, i);
}

/* The hypervisor has stopped in the middle, which holds nobody up; what it did is seen when it goes
 * on. */
static void odd_for_long(const void *argument) {
    const bool from_the_start = argument != NULL;
    const struct fc_timekeep *page;
    volatile struct device *device;
    struct command command;
    uint64_t updates;
    own_dev();
    device = make_device();
    if (from_the_start)
        begin_update(device);
    command = start_command();
    command_says(&command, "is in service");
    page = wait_for_page();
    if (!from_the_start)
        begin_update(device);
    device->disruption_marker++;
    updates = __atomic_load_n(&page->heartbeat, __ATOMIC_RELAXED);
    while (__atomic_load_n(&page->heartbeat, __ATOMIC_RELAXED) < updates + 30)
        sched_yield();
    CHECK(page->in_service == 1 && page->outages == 0, "in service %u, %" PRIu64 " outages",
          page->in_service, page->outages);
    end_update(device);
    command_says(&command, "out of service: the hypervisor says that the counter was disturbed");
    command_says(&command, "is in service");
    stop_command(&command, 1);
}

int main(int argc, char **argv) {
    static const struct foreign foreign[] = {
        {"where there is no device none is found", "without a device the publisher goes on",
         is_absent},
        {"a file with another magic is not the device",
         "with another magic the publisher goes on without the device", has_wrong_magic},
        {"a device of another version is not used",
         "with another version the publisher goes on without the device", has_other_version},
        {"a device without room for the marker is not used",
         "without a marker the publisher goes on without the device", has_no_room_for_marker},
        {"an empty file is not the device",
         "with an empty file the publisher goes on without the device", is_empty},
        {"a file that ends within the magic is not the device",
         "with a file that ends within the magic the publisher goes on without the device",
         is_cut_in_magic},
        {"a file that ends before the version is not the device",
         "with a file that ends before the version the publisher goes on without the device",
         is_cut_before_version},
        {"a directory is not the device",
         "with a directory in its place the publisher goes on without the device", is_directory},
        {"a FIFO does not block and is not the device",
         "with a FIFO in its place the publisher goes on without the device", is_fifo},
        {"a socket is not the device",
         "with a socket in its place the publisher goes on without the device", is_socket},
        {"a link that leads nowhere is not the device",
         "with a link that leads nowhere the publisher goes on without the device",
         is_link_to_itself},
        {"a device that cannot be mapped is not this one",
         "with a device that cannot be mapped the publisher goes on", is_device_without_memory},
        {"a device of zeros is not this one", "with a device of zeros the publisher goes on",
         is_device_of_zeros},
        {"a device that has no driver cannot be used",
         "with a device that has no driver the publisher goes on", is_device_without_driver},
    };
    check_begin(argc, argv);
    check_that("each change of the marker is told once, and no other", told_once, NULL);
    check_that("a marker that is being written is told when it is whole", being_written, NULL);
    check_that("a marker that was being written at the beginning is told", opened_while_written,
               NULL);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        check_that(foreign[i].claim, not_taken, &foreign[i]);
        check_that(foreign[i].publisher_claim, goes_on_without, &foreign[i]);
    }
    check_that("a device that may not be read is not used", unreadable, NULL);
    check_that("a disruption takes the page out of service until it is proved anew", out_and_back,
               NULL);
    check_that("a sequence that stays odd holds nobody up", odd_for_long, NULL);
    check_that("a sequence that is odd from the start holds nobody up", odd_for_long, argv);
    return check_end();
}
