/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzz target over every file of a folder, without a fuzzer: what was once found stays found
 * under each compiler and sanitizer that the other tests are built with.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run(const char *folder, const char *name) {
    static uint8_t data[1 << 20];
    char path[4096];
    size_t size;
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    size = fread(data, 1, sizeof data, file);
    if (ferror(file) || !feof(file)) {
        fprintf(stderr, "%s: cannot be read, or is larger than a megabyte\n", path);
        fclose(file);
        return -1;
    }
    fclose(file);
    printf("%s, %zu bytes\n", name, size); /* the last one is the culprit */
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    return 0;
}

int main(int argc, char **argv) {
    struct dirent *entry;
    int files = 0, failed = 0;
    DIR *folder;
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = opendir(argv[1]);
    if (!folder) {
        perror(argv[1]);
        return 2;
    }
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        files++;
        failed |= run(argv[1], entry->d_name) < 0;
    }
    closedir(folder);
    printf("%d files\n", files);
    return failed || files == 0;
}
