/* A driver library for tests: what NVML answers, from a text file that a test rewrites while the agent runs.
 *
 * Built by tests/agent/driver.py and loaded by the real pynvml under the real soname. The file is named by
 * GRIDOPS_FAKE_NVML and read again at every call; without it there is no driver (9). One line each:
 *
 *   init_error=9 | version=570.00 | latency_ms=0
 *   gpu uuid=GPU-a name=NVIDIA_H200 total=MiB used=MiB util=% temp=C power=mW limit=mW throttle=BITS ecc=N
 *       procs=PID:MiB,PID:na graphics=PID:MiB mig=1 slots=7 err=15 err.memory=999
 *   mig gpu=0 at=2 uuid=MIG-b name=.. total=MiB used=MiB procs=PID:MiB
 *
 * `err` answers every question about a card; `err.WORD` one of them: handle uuid name memory procs graphics temp power
 * limit throttle ecc util mig. `mem=unknown` instead of a number in procs is NVML_VALUE_NOT_AVAILABLE.
 * -DOLD leaves out what drivers before 535 do not have; -DMISMATCHED is a library whose kernel module is another (18).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define CARDS 16
#define PARTS 32
#define PIDS 32
#define WORDS 16
#define CARD_HANDLE 0x1000
#define PART_HANDLE 0x2000

typedef unsigned int u32;
typedef unsigned long long u64;

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NO_DRIVER = 9,
       LOST = 15, MISMATCH = 18, VERSION = 25 };

typedef struct { u64 total, free, used; } memory_t;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { u32 gpu, memory; } utilization_t;
typedef struct { u32 version, sensor; int temperature; } temperature_v1_t;
typedef struct { u32 pid; u64 used; u32 gpu_instance, compute_instance; } process_t;

typedef struct { u32 count; process_t at[PIDS]; } processes_t;
typedef struct {
  char uuid[96], name[96];
  u64 total, used, throttle, ecc;
  u32 util, temp, power, limit, mig, slots, parent, place, errors;
  processes_t compute, graphics;
  struct { char word[16]; int code; } error[WORDS];
} device_t;
typedef struct {
  int init_error, latency_ms;
  char version[80];
  u32 cards, parts;
  device_t card[CARDS], part[PARTS];
} state_t;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int initialized;

static void processes(processes_t *into, char *text) {
  char *save = NULL;
  for (char *one = strtok_r(text, ",", &save); one && into->count < PIDS; one = strtok_r(NULL, ",", &save)) {
    char *colon = strchr(one, ':');
    process_t p = {(u32)strtoul(one, NULL, 10), ~0ull, ~0u, ~0u};
    if (colon && strcmp(colon + 1, "na")) p.used = strtoull(colon + 1, NULL, 10) << 20;
    into->at[into->count++] = p;
  }
}

static void text(char *into, size_t size, const char *value) {
  snprintf(into, size, "%s", value);
  for (char *c = into; *c; c++)
    if (*c == '_') *c = ' ';
}

static void device(device_t *d, char *line) {
  char *save = NULL;
  for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
    char *value = strchr(word, '=');
    if (!value) continue;
    *value++ = 0;
    u64 n = strtoull(value, NULL, 0);
    if (!strcmp(word, "uuid")) snprintf(d->uuid, sizeof d->uuid, "%s", value);
    else if (!strcmp(word, "name")) text(d->name, sizeof d->name, value);
    else if (!strcmp(word, "total")) d->total = n << 20;
    else if (!strcmp(word, "used")) d->used = n << 20;
    else if (!strcmp(word, "util")) d->util = (u32)n;
    else if (!strcmp(word, "temp")) d->temp = (u32)n;
    else if (!strcmp(word, "power")) d->power = (u32)n;
    else if (!strcmp(word, "limit")) d->limit = (u32)n;
    else if (!strcmp(word, "throttle")) d->throttle = n;
    else if (!strcmp(word, "ecc")) d->ecc = n;
    else if (!strcmp(word, "mig")) d->mig = (u32)n;
    else if (!strcmp(word, "slots")) d->slots = (u32)n;
    else if (!strcmp(word, "gpu")) d->parent = (u32)n;
    else if (!strcmp(word, "at")) d->place = (u32)n;
    else if (!strcmp(word, "procs")) processes(&d->compute, value);
    else if (!strcmp(word, "graphics")) processes(&d->graphics, value);
    else if (!strncmp(word, "err", 3) && d->errors < WORDS) {
      snprintf(d->error[d->errors].word, 16, "%s", word[3] == '.' ? word + 4 : "");
      d->error[d->errors++].code = (int)n;
    }
  }
}

static state_t *now(void) {
  state_t *s = calloc(1, sizeof *s);
  const char *path = getenv("GRIDOPS_FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[8192];
  snprintf(s->version, sizeof s->version, "570.00");
  if (!file) { s->init_error = NO_DRIVER; return s; }
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\r\n")] = 0;
    if (!strncmp(line, "init_error=", 11)) s->init_error = atoi(line + 11);
    else if (!strncmp(line, "latency_ms=", 11)) s->latency_ms = atoi(line + 11);
    else if (!strncmp(line, "version=", 8)) snprintf(s->version, sizeof s->version, "%s", line + 8);
    else if (!strncmp(line, "gpu ", 4) && s->cards < CARDS) device(&s->card[s->cards++], line + 4);
    else if (!strncmp(line, "mig ", 4) && s->parts < PARTS) device(&s->part[s->parts++], line + 4);
  }
  fclose(file);
  if (s->latency_ms) usleep((useconds_t)s->latency_ms * 1000);
  return s;
}

static int failing(const device_t *d, const char *word) {
  for (u32 i = 0; i < d->errors; i++)
    if (!d->error[i].word[0] || !strcmp(d->error[i].word, word)) return d->error[i].code;
  return OK;
}

static device_t *found(state_t *s, void *handle) {
  size_t h = (size_t)handle;
  if (h >= PART_HANDLE) return h - PART_HANDLE < s->parts ? &s->part[h - PART_HANDLE] : NULL;
  return h >= CARD_HANDLE && h - CARD_HANDLE < s->cards ? &s->card[h - CARD_HANDLE] : NULL;
}

/* One question about one device: what it answers is the last argument, evaluated with `d` as the device. */
#define ASK(handle, word, answer)                                                    \
  do {                                                                               \
    if (!initialized) return UNINITIALIZED;                                          \
    state_t *s = now();                                                              \
    device_t *d = found(s, handle);                                                  \
    int code = s->init_error ? s->init_error : !d ? LOST : failing(d, word);         \
    if (code == OK) { answer; }                                                      \
    free(s);                                                                         \
    return code;                                                                     \
  } while (0)

/* What pynvml's structures have to look like: checked against ctypes by a test. */
API const u32 gridops_layout[] = {
    sizeof(memory_t), offsetof(memory_t, used), sizeof(utilization_t), sizeof(temperature_v1_t),
    offsetof(temperature_v1_t, temperature), sizeof(process_t), offsetof(process_t, used),
    offsetof(process_t, compute_instance), sizeof(memory_v2_t)};

API int nvmlInitWithFlags(u32 flags) {
  (void)flags;
#ifdef MISMATCHED
  return MISMATCH;
#endif
  state_t *s = now();
  int code = s->init_error;
  free(s);
  if (code) return code;
  pthread_mutex_lock(&turn);
  initialized++;
  pthread_mutex_unlock(&turn);
  return OK;
}
API int nvmlShutdown(void) {
  pthread_mutex_lock(&turn);
  int code = initialized ? OK : UNINITIALIZED;
  if (initialized) initialized--;
  pthread_mutex_unlock(&turn);
  return code;
}
API const char *nvmlErrorString(int code) {
  return code == LOST ? "GPU is lost" : code == MISMATCH ? "Driver/library version mismatch" : "Unknown Error";
}
API int nvmlSystemGetDriverVersion(char *into, u32 size) {
  if (!initialized) return UNINITIALIZED;
  state_t *s = now();
  snprintf(into, size, "%s", s->version);
  free(s);
  return OK;
}
API int nvmlDeviceGetCount_v2(u32 *count) {
  if (!initialized) return UNINITIALIZED;
  state_t *s = now();
  int code = s->init_error;
  *count = s->cards;
  free(s);
  return code;
}
API int nvmlDeviceGetHandleByIndex_v2(u32 index, void **handle) {
  if (!initialized) return UNINITIALIZED;
  state_t *s = now();
  int code = s->init_error ? s->init_error : index >= s->cards ? INVALID_ARGUMENT : OK;
  for (u32 i = 0; code == OK && i < s->card[index].errors; i++)
    if (!strcmp(s->card[index].error[i].word, "handle")) code = s->card[index].error[i].code;
  *handle = (void *)(size_t)(CARD_HANDLE + index);
  free(s);
  return code;
}
API int nvmlDeviceGetName(void *h, char *into, u32 size) { ASK(h, "name", snprintf(into, size, "%s", d->name)); }
API int nvmlDeviceGetUUID(void *h, char *into, u32 size) { ASK(h, "uuid", snprintf(into, size, "%s", d->uuid)); }
API int nvmlDeviceGetMemoryInfo(void *h, memory_t *into) {
  ASK(h, "memory", (into->total = d->total, into->used = d->used, into->free = d->total - d->used));
}
API int nvmlDeviceGetMemoryInfo_v2(void *h, memory_v2_t *into) {
  if (into->version != 0x02000028) return VERSION;
  ASK(h, "memory", (into->total = d->total, into->used = d->used, into->free = d->total - d->used, into->reserved = 0));
}
API int nvmlDeviceGetUtilizationRates(void *h, utilization_t *into) {
  ASK(h, "util", (into->gpu = d->util, into->memory = d->util));
}
API int nvmlDeviceGetTemperature(void *h, u32 sensor, u32 *into) { ASK(h, "temp", (*into = sensor ? 0 : d->temp)); }
API int nvmlDeviceGetPowerUsage(void *h, u32 *into) { ASK(h, "power", *into = d->power); }
API int nvmlDeviceGetEnforcedPowerLimit(void *h, u32 *into) { ASK(h, "limit", *into = d->limit); }
API int nvmlDeviceGetTotalEccErrors(void *h, u32 type, u32 counter, u64 *into) {
  ASK(h, "ecc", (*into = type == 1 && counter == 0 ? d->ecc : 0));
}
API int nvmlDeviceGetMigMode(void *h, u32 *current, u32 *pending) {
  ASK(h, "mig", { if (d->mig > 1) { free(s); return NOT_SUPPORTED; } *current = *pending = d->mig; });
}
API int nvmlDeviceGetMaxMigDeviceCount(void *h, u32 *count) { ASK(h, "mig", *count = d->slots); }
API int nvmlDeviceGetMigDeviceHandleByIndex(void *h, u32 place, void **handle) {
  ASK(h, "mig", {
    code = NOT_FOUND;
    for (u32 i = 0; i < s->parts; i++)
      if (s->part[i].parent == (size_t)h - CARD_HANDLE && s->part[i].place == place) {
        *handle = (void *)(size_t)(PART_HANDLE + i);
        code = OK;
      }
  });
}
static int listed(const processes_t *all, u32 *count, process_t *into) {
  u32 room = *count;
  *count = all->count;
  if (room < all->count || (all->count && !into)) return INSUFFICIENT_SIZE;
  memcpy(into, all->at, all->count * sizeof *into);
  return OK;
}
API int nvmlDeviceGetComputeRunningProcesses_v2(void *h, u32 *count, process_t *into) {
  ASK(h, "procs", code = listed(&d->compute, count, into));
}
API int nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, u32 *count, process_t *into) {
  ASK(h, "graphics", code = listed(&d->graphics, count, into));
}
#ifndef OLD
API int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *count, process_t *into) {
  ASK(h, "procs", code = listed(&d->compute, count, into));
}
API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, u32 *count, process_t *into) {
  ASK(h, "graphics", code = listed(&d->graphics, count, into));
}
API int nvmlDeviceGetCurrentClocksEventReasons(void *h, u64 *into) { ASK(h, "throttle", *into = d->throttle); }
API int nvmlDeviceGetTemperatureV(void *h, temperature_v1_t *into) {
  if (into->version != 0x0100000C) return VERSION;
  ASK(h, "temp", into->temperature = (int)d->temp);
}
#endif
API int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, u64 *into) { ASK(h, "throttle", *into = d->throttle); }
