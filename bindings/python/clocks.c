/* SPDX-License-Identifier: MIT
 *
 * fastclock._clocks: the clock reads for CPython, by hand.
 *
 * A call through CFFI releases the interpreter's lock and takes it again, which costs more than the
 * read itself. Here nothing is released and the read is compiled in; what is not a read goes
 * through CFFI. The module keeps no state of its own, so that it needs no lock and works in every
 * interpreter of a process.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>

#define FASTCLOCK_INLINE
#include <fastclock.h>

#if PY_VERSION_HEX < 0x030b0000
#include <longintrepr.h> /* from 3.11 on Python.h brings it */
#endif

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((cold, noinline))

/* ---- Results ------------------------------------------------------------------------------- */

/* The public call, PyLong_FromUnsignedLongLong, counts the digits in a loop, allocates and
 * initialises in two further functions, and fills the digits in a second loop. A time has two
 * digits of 30 bits (what counts from boot, for 36 years) or three (what counts from 1970), and an
 * int that is not a small one is no more than an allocated header and its digits: without the
 * detours a relaxed read costs a sixth less on 3.11 and a fifth less on 3.9. The layout is in the
 * headers of these versions but not promised for others, so that these alone are named; builds that
 * keep books on objects, or count references otherwise, take the public call as well. */
#if PY_VERSION_HEX < 0x030e0000 && PYLONG_BITS_IN_DIGIT == 30 && !defined(Py_DEBUG) &&             \
    !defined(Py_REF_DEBUG) && !defined(Py_TRACE_REFS) && !defined(Py_GIL_DISABLED)

static inline PyObject *int_from_count(uint64_t count) {
    const size_t digits = count >> 60 ? 3 : 2;
    PyLongObject *number;
    digit *digit_at;
    if (UNLIKELY(count >> 30 == 0))
        return PyLong_FromUnsignedLongLong(count);
#if PY_VERSION_HEX >= 0x030c0000
    number = PyObject_Malloc(offsetof(PyLongObject, long_value.ob_digit) + digits * sizeof(digit));
    if (UNLIKELY(!number))
        return PyErr_NoMemory();
    number->long_value.lv_tag = digits << 3; /* sign and flags: 0, positive */
    digit_at = number->long_value.ob_digit;
#else
    number = PyObject_Malloc(offsetof(PyLongObject, ob_digit) + digits * sizeof(digit));
    if (UNLIKELY(!number))
        return PyErr_NoMemory();
    Py_SET_SIZE(number, (Py_ssize_t)digits);
    digit_at = number->ob_digit;
#endif
    Py_SET_TYPE((PyObject *)number, &PyLong_Type);
    /* Not Py_SET_REFCNT, which from 3.12 on reads the old count first: there is none yet. */
    ((PyObject *)number)->ob_refcnt = 1;
    digit_at[0] = (digit)(count & PyLong_MASK);
    digit_at[1] = (digit)(count >> 30 & PyLong_MASK);
    if (digits == 3)
        digit_at[2] = (digit)(count >> 60);
    return (PyObject *)number;
}

#else

static inline PyObject *int_from_count(uint64_t count) {
    return PyLong_FromUnsignedLongLong(count);
}

#endif

/* As time.time() rounds: the double nearest to the nanoseconds, divided. */
static inline PyObject *float_from_count(uint64_t count) {
    return PyFloat_FromDouble((double)count / 1e9);
}

/* Raises OSError(ENOTSUP) with what fc_get_info has against each source. */
static COLD PyObject *raise_no_time(void) {
    struct fc_info info;
    PyObject *message = PyUnicode_FromString("no source of time serves"), *arguments;
    fc_get_info(&info, sizeof info);
    for (int32_t source = FC_SOURCE_KERNEL_PAGE; source <= FC_SOURCE_LIBC && message; source++) {
        PyObject *longer = PyUnicode_FromFormat("%U; %s: %s", message, fc_source_name(source),
                                                fc_reason_text(info.reason[source]));
        Py_DECREF(message);
        message = longer;
    }
    if (!message)
        return NULL;
    arguments = Py_BuildValue("(iN)", ENOTSUP, message);
    if (arguments) {
        PyErr_SetObject(PyExc_OSError, arguments);
        Py_DECREF(arguments);
    }
    return NULL;
}

static COLD PyObject *raise_arguments(const char *name, Py_ssize_t count) {
    return PyErr_Format(PyExc_TypeError, "%s() takes no arguments (%zd given)", name, count);
}

/* ---- What the docstrings say --------------------------------------------------------------- */

#define UNIX                                                                                       \
    "Unix time: since 1970-01-01 00:00:00 UTC, leap seconds not counted. It steps when the\n"      \
    "clock is set."
#define MONOTONIC                                                                                  \
    "Counted from an unspecified point, boot on today's kernels. It never steps, is slewed by\n"   \
    "NTP, and stands still in suspend."
#define RAW                                                                                        \
    "Counted from an unspecified point, boot on today's kernels. It never steps, is never\n"       \
    "slewed, and stands still in suspend."
#define BOOT "The monotonic clock plus the time spent in suspend."
#define TAI                                                                                        \
    "International Atomic Time since 1970; it equals Unix time where nobody told the kernel the\n" \
    "offset (see tai_offset_s of info())."
#define ORDERED                                                                                    \
    "\n\nOrdered: the counter is not read before earlier instructions are done, which is the\n"    \
    "guarantee of clock_gettime."
#define RELAXED                                                                                    \
    "\n\nRelaxed: no fence, half the cost. A reading may be early by the depth of the pipeline,\n" \
    "and two threads that hand readings to each other may see them out of order."
#define COARSE                                                                                     \
    "\n\nCoarse: the value at the kernel's last tick; coarse_resolution_ns of info() is the\n"     \
    "distance between ticks. The cheapest read."
#define RAISES                                                                                     \
    "\n\nMay be called from any thread. Raises OSError (ENOTSUP), with the reasons, where no\n"    \
    "source serves."

/* Every read: X(name, function of the library, what is read, what is to be known of it). */
#define READS(X)                                                                                   \
    X(time, fc_realtime_ns, "the realtime clock", UNIX ORDERED)                                    \
    X(realtime, fc_realtime_ns, "the realtime clock", UNIX ORDERED)                                \
    X(monotonic, fc_monotonic_ns, "the monotonic clock", MONOTONIC ORDERED)                        \
    X(perf_counter, fc_monotonic_ns, "the monotonic clock", MONOTONIC ORDERED)                     \
    X(raw, fc_raw_ns, "the raw monotonic clock", RAW ORDERED)                                      \
    X(boottime, fc_boottime_ns, "the boottime clock", BOOT ORDERED)                                \
    X(tai, fc_tai_ns, "the TAI clock", TAI ORDERED)                                                \
    X(time_coarse, fc_realtime_coarse_ns, "the coarse realtime clock", UNIX COARSE)                \
    X(monotonic_coarse, fc_monotonic_coarse_ns, "the coarse monotonic clock", MONOTONIC COARSE)    \
    X(relaxed_time, fc_realtime_relaxed_ns, "the realtime clock, relaxed", UNIX RELAXED)           \
    X(relaxed_realtime, fc_realtime_relaxed_ns, "the realtime clock, relaxed", UNIX RELAXED)       \
    X(relaxed_monotonic, fc_monotonic_relaxed_ns, "the monotonic clock, relaxed",                  \
      MONOTONIC RELAXED)                                                                           \
    X(relaxed_perf_counter, fc_monotonic_relaxed_ns, "the monotonic clock, relaxed",               \
      MONOTONIC RELAXED)                                                                           \
    X(relaxed_raw, fc_raw_relaxed_ns, "the raw monotonic clock, relaxed", RAW RELAXED)

/* ---- The functions ------------------------------------------------------------------------- */

/* METH_FASTCALL, although METH_NOARGS would check the arguments by itself: from 3.11 on the
 * interpreter has a quick road for the one and none for the other, worth a quarter of a read. */
#define DEFINE_READ(name, read, convert)                                                           \
    static PyObject *python_##name(PyObject *module, PyObject *const *arguments,                   \
                                   Py_ssize_t count) {                                             \
        uint64_t ns;                                                                               \
        (void)module;                                                                              \
        (void)arguments;                                                                           \
        if (UNLIKELY(count != 0))                                                                  \
            return raise_arguments(#name, count);                                                  \
        ns = read();                                                                               \
        if (UNLIKELY(ns == FC_NO_TIME))                                                            \
            return raise_no_time();                                                                \
        return convert(ns);                                                                        \
    }

#define DEFINE_BOTH_FORMS(name, read, what, about)                                                 \
    DEFINE_READ(name##_ns, read, int_from_count)                                                   \
    DEFINE_READ(name, read, float_from_count)

READS(DEFINE_BOTH_FORMS)
DEFINE_READ(vtime64, vtime64, int_from_count)
DEFINE_READ(ticks, fc_ticks, int_from_count)
DEFINE_READ(ticks_ordered, fc_ticks_ordered, int_from_count)

/* The parentheses of a signature come first in a docstring, for inspect.signature(). */
#define METHOD(name, documentation)                                                                \
    {.ml_name = #name,                                                                             \
     .ml_meth = (PyCFunction)(void (*)(void))python_##name,                                        \
     .ml_flags = METH_FASTCALL,                                                                    \
     .ml_doc = PyDoc_STR(#name "()\n--\n\n" documentation)},

#define METHODS_OF_BOTH_FORMS(name, read, what, about)                                             \
    METHOD(name##_ns, "Read " what ": nanoseconds, an int.\n\n" about RAISES)                      \
    METHOD(name,                                                                                   \
           "Read " what                                                                            \
           ": seconds, a float.\n\nA float holds today's date to some 200 ns.\n" about RAISES)

/* Each macro below brings its comma. */
/* clang-format off */
static PyMethodDef methods[] = {
    READS(METHODS_OF_BOTH_FORMS)
    METHOD(vtime64, "Read the realtime clock as one count of nanoseconds since the Unix epoch.\n\n"
                    "An int: time_ns() by its old name.\n" UNIX ORDERED RAISES)
    METHOD(ticks, "Read the processor's time-stamp counter, relaxed: an int.\n\n"
                  "Where the counter may not be read, these are the nanoseconds of raw_ns(), and\n"
                  "ticks_hz() is 10**9. ticks_to_ns() converts differences." RAISES)
    METHOD(ticks_ordered, "Read the processor's time-stamp counter, ordered: an int.\n\n"
                          "As ticks(), but not before earlier instructions are done." RAISES)
    {NULL, NULL, 0, NULL}};
/* clang-format on */

/* ---- The module ---------------------------------------------------------------------------- */

static int execute(PyObject *module) {
    return PyModule_AddStringConstant(module, "__version__", fc_version());
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "fastclock._clocks",
    .m_doc = PyDoc_STR("The clock reads, compiled; import them from fastclock."),
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__clocks(void) {
    return PyModuleDef_Init(&definition);
}
