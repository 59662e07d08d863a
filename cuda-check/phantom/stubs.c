/* SPDX-License-Identifier: Apache-2.0 */
/* Every CUDA function that a library asks for and the phantom lacks, because it is newer or answers
 * with a size: a function that does nothing and is named in the report.  A small shared object of
 * them is written into memory and opened before the library is, so that its symbols are found
 * first.
 *
 * One page that is read and run (headers, symbols, names, code), one that is written (the dynamic
 * section, which the loader relocates in place). */
#define _GNU_SOURCE
#include "phantom.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "the phantom writes x86-64 code; build with -DTIDEMARK_CUDA_CHECK=OFF on other machines"
#endif

/* ---- which names ---- */

static bool is_cuda_name(const char *name) {
    static const char *const prefixes[] = {"cuda", "__cuda",   "cublas",   "cudnn",
                                           "nccl", "cusparse", "cusolver", "cufft"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' && strncmp(name, "cuFile", 6) != 0;
}

/* An answer that stays unwritten would be used as a size. */
static bool is_size_query(const char *name) {
    return strstr(name, "ufferSize") || strstr(name, "orkspaceSize") || strstr(name, "GetSize") ||
           strstr(name, "SpaceSize") || strstr(name, "SizeInBytes");
}

/* What every stub does. */
static long stub_called(const char *name) {
    if (is_size_query(name)) {
        note("phantom-unknown-call", name);
        return ERROR_NOT_SUPPORTED;
    }
    note("phantom-stub", name);
    return OK;
}

/* ---- names that a file leaves undefined ---- */

typedef struct names {
    char **at;
    size_t count, capacity;
} names;

static void names_add(names *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], name) == 0) return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 256;
        char **moved = realloc(list->at, capacity * sizeof *moved);
        if (!moved) return;
        list->at = moved;
        list->capacity = capacity;
    }
    char *copied = strdup(name);
    if (copied) list->at[list->count++] = copied;
}

static const Elf64_Shdr *section_of(const unsigned char *file, size_t size, unsigned type) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
    if (size < sizeof *head || memcmp(file, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
        head->e_shentsize != sizeof(Elf64_Shdr) || head->e_shoff > size ||
        head->e_shnum > (size - head->e_shoff) / sizeof(Elf64_Shdr))
        return NULL;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
    for (unsigned i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        if (s->sh_type == type && s->sh_offset <= size && s->sh_size <= size - s->sh_offset &&
            s->sh_link < head->e_shnum)
            return s;
    }
    return NULL;
}

/* The string table of a section, which ends in a zero; NULL if it does not. */
static const char *strings_of(const unsigned char *file, size_t size, const Elf64_Shdr *section, size_t *length) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *s = (const Elf64_Shdr *)(file + head->e_shoff) + section->sh_link;
    if (s->sh_offset > size || s->sh_size > size - s->sh_offset || s->sh_size == 0) return NULL;
    *length = s->sh_size;
    return file[s->sh_offset + s->sh_size - 1] ? NULL : (const char *)file + s->sh_offset;
}

static void file_read(names *list, const unsigned char *file, size_t size) {
    size_t length = 0;
    const Elf64_Shdr *symbols = section_of(file, size, SHT_DYNSYM);
    const Elf64_Shdr *dynamic = section_of(file, size, SHT_DYNAMIC);
    const char *text = symbols ? strings_of(file, size, symbols, &length) : NULL;
    if (!text) return;
    const Elf64_Sym *symbol = (const Elf64_Sym *)(file + symbols->sh_offset);
    for (size_t i = 0; i < symbols->sh_size / sizeof *symbol; i++, symbol++) {
        if (symbol->st_shndx != SHN_UNDEF || symbol->st_name >= length) continue;
        const char *name = text + symbol->st_name;
        if (is_cuda_name(name) && !dlsym(RTLD_DEFAULT, name)) names_add(list, name);
    }
    if (!dynamic || !(text = strings_of(file, size, dynamic, &length))) return;
    const Elf64_Dyn *entry = (const Elf64_Dyn *)(file + dynamic->sh_offset);
    for (size_t i = 0; i < dynamic->sh_size / sizeof *entry; i++, entry++) {
        static const char runtime[] = "libcudart.so.";
        if (entry->d_tag != DT_NEEDED || entry->d_un.d_val >= length) continue;
        const char *needed = text + entry->d_un.d_val;
        if (strncmp(needed, runtime, sizeof runtime - 1) == 0) phantom_runtime(atoi(needed + sizeof runtime - 1));
    }
}

static void path_read(names *list, const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (file < 0) return;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        size_t size = (size_t)info.st_size;
        void *at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (at != MAP_FAILED) {
            file_read(list, at, size);
            munmap(at, size);
        }
    }
    close(file);
}

/* ---- a shared object of stubs ---- */

enum { STUB_BYTES = 32, BUCKETS = 256 };

static uint32_t sysv_hash(const char *name) {
    uint32_t h = 0;
    for (; *name; name++) {
        h = (h << 4) + (unsigned char)*name;
        uint32_t high = h & 0xf0000000;
        h = (h ^ (high >> 24)) & ~high;
    }
    return h;
}

/* lea name(%rip), %rdi; movabs $stub_called, %rax; jmp *%rax */
static void stub_write(unsigned char *at, const char *name) {
    int32_t distance = (int32_t)(name - (const char *)(at + 7));
    uintptr_t target = (uintptr_t)stub_called;
    memcpy(at, "\x48\x8d\x3d", 3);
    memcpy(at + 3, &distance, 4);
    memcpy(at + 7, "\x48\xb8", 2);
    memcpy(at + 9, &target, 8);
    memcpy(at + 17, "\xff\xe0", 2);
}

static size_t aligned(size_t at, size_t to) {
    return (at + to - 1) / to * to;
}

/* The whole file; *size is its length. */
static unsigned char *object_make(const names *list, size_t *size) {
    size_t text = 1;
    for (size_t i = 0; i < list->count; i++) text += strlen(list->at[i]) + 1;
    size_t hash_at = sizeof(Elf64_Ehdr) + 4 * sizeof(Elf64_Phdr);
    size_t symbols_at = aligned(hash_at + (2 + BUCKETS + list->count + 1) * 4, 8);
    size_t text_at = symbols_at + (list->count + 1) * sizeof(Elf64_Sym);
    size_t code_at = aligned(text_at + text, STUB_BYTES);
    size_t dynamic_at = aligned(code_at + list->count * STUB_BYTES, 4096);
    const Elf64_Dyn dynamic[] = {
        {DT_HASH, {hash_at}}, {DT_SYMTAB, {symbols_at}},        {DT_STRTAB, {text_at}},
        {DT_STRSZ, {text}},   {DT_SYMENT, {sizeof(Elf64_Sym)}}, {DT_NULL, {0}},
    };
    *size = dynamic_at + sizeof dynamic;
    unsigned char *file = calloc(1, *size);
    if (!file) return NULL;

    Elf64_Ehdr head = {.e_type = ET_DYN,
                       .e_machine = EM_X86_64,
                       .e_version = EV_CURRENT,
                       .e_phoff = sizeof head,
                       .e_ehsize = sizeof head,
                       .e_phentsize = sizeof(Elf64_Phdr),
                       .e_phnum = 4,
                       .e_shentsize = sizeof(Elf64_Shdr)};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_ident[EI_VERSION] = EV_CURRENT;
    memcpy(file, &head, sizeof head);
    const Elf64_Phdr parts[] = {
        {PT_LOAD, PF_R | PF_X, 0, 0, 0, dynamic_at, dynamic_at, 4096},
        {PT_LOAD, PF_R | PF_W, dynamic_at, dynamic_at, dynamic_at, sizeof dynamic, sizeof dynamic, 4096},
        {PT_DYNAMIC, PF_R | PF_W, dynamic_at, dynamic_at, dynamic_at, sizeof dynamic, sizeof dynamic, 8},
        {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16},
    };
    memcpy(file + sizeof head, parts, sizeof parts);
    memcpy(file + dynamic_at, dynamic, sizeof dynamic);

    uint32_t *hash = (uint32_t *)(void *)(file + hash_at), *chain = hash + 2 + BUCKETS;
    Elf64_Sym *symbols = (Elf64_Sym *)(void *)(file + symbols_at);
    char *name = (char *)file + text_at + 1;
    hash[0] = BUCKETS;
    hash[1] = (uint32_t)list->count + 1;
    for (uint32_t i = 1; i <= list->count; i++) {
        size_t length = strlen(list->at[i - 1]) + 1, code = code_at + (i - 1) * STUB_BYTES;
        memcpy(name, list->at[i - 1], length);
        symbols[i] = (Elf64_Sym){.st_name = (uint32_t)((size_t)(name - (char *)file) - text_at),
                                 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                 .st_shndx = 1,
                                 .st_value = code,
                                 .st_size = STUB_BYTES};
        uint32_t *bucket = &hash[2 + sysv_hash(name) % BUCKETS];
        chain[i] = *bucket;
        *bucket = i;
        stub_write(file + code, name);
        name += length;
    }
    return file;
}

static bool object_open(const names *list) {
    /* The loader knows files by the path that they were opened by: each has its own. */
    static size_t opened;
    static const char folder[] = "/proc/self/fd";
    size_t size, length = sizeof folder - 1;
    char path[4096];
    unsigned char *object = object_make(list, &size);
    int file = memfd_create("phantom-stubs", MFD_CLOEXEC);
    bool is_open = object && file >= 0 && write(file, object, size) == (ssize_t)size;
    free(object);
    if (is_open) {
        memcpy(path, folder, length);
        for (size_t i = 0; i < opened && length < sizeof path - 32; i++, length += 2) memcpy(path + length, "/.", 2);
        opened++;
        snprintf(path + length, sizeof path - length, "/%d", file);
        is_open = dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
        if (!is_open) fprintf(stderr, "tidemark: phantom: %s\n", dlerror());
    }
    if (file >= 0) close(file);
    return is_open;
}

/* Makes the functions that the libraries at these paths lack; before they are opened.
 * Returns how many, or -1. */
API(int, phantom_complete, const char *const *paths, int count) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    names list = {0};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) path_read(&list, paths[i]);
    int made = (int)list.count;
    if (made && !object_open(&list)) made = -1;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < list.count; i++) free(list.at[i]);
    free(list.at);
    return made;
}
