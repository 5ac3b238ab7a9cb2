/* output_file.c - see output_file.h. */
#include "cli/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int output_file_write(void *context, const void *bytes, size_t length, struct error *error)
{
    struct output_file *output = context;
    if (fwrite(bytes, 1, length, output->file) != length)
        return error_set(error, BANYAN_EINVAL, "%.120s cannot be written: %s", output->name, strerror(errno));
    output->written += length;
    return 0;
}

int output_file_open(struct output_file *output, const char *name, struct error *error)
{
    *output = (struct output_file){.name = name};
    if (!strcmp(name, "-")) {
        output->file = stdout;
        return isatty(STDOUT_FILENO)
                   ? error_set(error, BANYAN_EINVAL,
                               "standard output is a terminal: give a file with --output FILE")
                   : 0;
    }
    if (asprintf(&output->temporary, "%s.XXXXXX", name) < 0) {
        output->temporary = NULL;
        return error_set(error, BANYAN_ENOMEM, "no memory for a file's name");
    }
    const int descriptor = mkostemp(output->temporary, O_CLOEXEC);
    output->file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (output->file)
        return 0;
    const int cause = errno;
    if (descriptor >= 0) {
        close(descriptor);
        unlink(output->temporary);
    }
    free(output->temporary);
    output->temporary = NULL;
    return error_set(error, BANYAN_EINVAL, "%.160s cannot be made: %s", output->name, strerror(cause));
}

bool output_file_rewinds(const struct output_file *output)
{
    return output->temporary != NULL;
}

int output_file_rewind(struct output_file *output, uint64_t length, struct error *error)
{
    if (fflush(output->file) || ftruncate(fileno(output->file), (off_t)length) ||
        fseeko(output->file, (off_t)length, SEEK_SET))
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be cut back: %s", output->name,
                         strerror(errno));
    output->written = length;
    return 0;
}

/* A name is on the disk when its directory is. */
static int directory_sync(const char *path)
{
    char *copy = strdup(path);
    const int descriptor = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int status = descriptor < 0 ? -1 : fsync(descriptor);
    if (descriptor >= 0)
        close(descriptor);
    free(copy);
    return status;
}

/* The file is on the disk, then it gets its name. */
int output_file_publish(struct output_file *output, struct error *error)
{
    if (!output->temporary)
        return fflush(stdout)
                   ? error_set(error, BANYAN_EINVAL, "standard output cannot be written: %s", strerror(errno))
                   : 0;
    int failed = fflush(output->file) || fsync(fileno(output->file));
    if (fclose(output->file) || failed) {
        output->file = NULL;
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be written: %s", output->name, strerror(errno));
    }
    output->file = NULL;
    if (rename(output->temporary, output->name) || directory_sync(output->name))
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be made: %s", output->name, strerror(errno));
    free(output->temporary);
    output->temporary = NULL;
    return 0;
}

void output_file_close(struct output_file *output)
{
    if (output->file && output->file != stdout)
        fclose(output->file);
    if (output->temporary)
        unlink(output->temporary);
    free(output->temporary);
}
