/* What a container holds in the story told against a real runtime: it lists one model and answers nothing else.
 * gcc -static -O1 -o app/llama-server tiny_server.c; the image is this one file at /app/llama-server. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void leave(int number) { (void)number; _exit(0); }

int main(int count, char **words) {
    int port = 8080, one = 1;
    const char *alias = "model";
    for (int i = 1; i + 1 < count; i++) {
        if (!strcmp(words[i], "--port")) port = atoi(words[i + 1]);
        if (!strcmp(words[i], "--alias")) alias = words[i + 1];
        if (!strcmp(words[i], "--ctx-size") && atoi(words[i + 1]) == 1) {
            fprintf(stderr, "E cannot load the model\n");
            return 3;
        }
    }
    signal(SIGTERM, leave); /* the first process of a container has no default for it */
    int door = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY};
    if (bind(door, (struct sockaddr *)&here, sizeof here)) return perror("bind"), 1;
    listen(door, 16);
    fprintf(stderr, "listening on %d\n", port);
    for (;;) {
        char heard[4096], said[512];
        int caller = accept(door, 0, 0);
        if (read(caller, heard, sizeof heard) > 0) {
            int length = snprintf(said, sizeof said, "{\"data\":[{\"id\":\"%s\"}]}", alias);
            dprintf(caller, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", length, said);
        }
        close(caller);
    }
}
