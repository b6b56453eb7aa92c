/* A stand-in for librados and librbd, for guests that have no cluster: image IMAGE of pool POOL is the file
 * /POOL/IMAGE, and lost, as an image whose lock another client has broken, once /tmp/lost holds a byte.
 * Only what Xtent calls, and no more than it needs; a file is opened once, when the image is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef void (*callback)(void *completion, void *argument);

enum act { READ, WRITE, DISCARD, FLUSH };

/* rbd_completion_t; it is in the queue of its image until it has ended. */
struct completion {
	callback done;
	void *argument;
	ssize_t result;
	enum act act;
	uint64_t offset;
	size_t length;
	char *buffer;
	struct completion *next;
};

struct image {
	int file, lost, ends, has_lock;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct completion *first, **last;
};

int rados_create(void **cluster, const char *id)
{
	*cluster = strdup(id);
	return 0;
}
int rados_conf_read_file(void *cluster, const char *path) { return 0; }
int rados_conf_parse_env(void *cluster, const char *name) { return 0; }
int rados_conf_set(void *cluster, const char *option, const char *value) { return 0; }
int rados_conf_get(void *cluster, const char *option, char *value, size_t size) { return -ENOENT; }
int rados_connect(void *cluster) { return 0; }
void rados_shutdown(void *cluster) { free(cluster); }
int rados_ioctx_create(void *cluster, const char *pool, void **io)
{
	*io = strdup(pool);
	return 0;
}
void rados_ioctx_set_namespace(void *io, const char *name) {}
void rados_ioctx_destroy(void *io) { free(io); }

static int is_lost(struct image *image)
{
	char byte;
	return pread(image->lost, &byte, 1, 0) == 1;
}

static ssize_t carry_out(struct image *image, struct completion *it)
{
	char zeros[4096] = {0};

	if (is_lost(image))
		return -ESHUTDOWN;
	switch (it->act) {
	case READ:
		return pread(image->file, it->buffer, it->length, it->offset);
	case WRITE:
		return pwrite(image->file, it->buffer, it->length, it->offset) == (ssize_t)it->length ? 0 : -EIO;
	case DISCARD:
		for (size_t at = 0; at < it->length; at += sizeof(zeros)) {
			size_t some = it->length - at < sizeof(zeros) ? it->length - at : sizeof(zeros);
			if (pwrite(image->file, zeros, some, it->offset + at) != (ssize_t)some)
				return -EIO;
		}
		return 0;
	case FLUSH:
		return fsync(image->file) ? -errno : 0;
	}
	return -EINVAL;
}

static void *work(void *argument)
{
	struct image *image = argument;

	pthread_mutex_lock(&image->lock);
	for (;;) {
		struct completion *it = image->first;
		if (!it && image->ends)
			break;
		if (!it) {
			pthread_cond_wait(&image->changed, &image->lock);
			continue;
		}
		if (!(image->first = it->next))
			image->last = &image->first;
		pthread_mutex_unlock(&image->lock);
		it->result = carry_out(image, it);
		it->done(it, it->argument);
		pthread_mutex_lock(&image->lock);
	}
	pthread_mutex_unlock(&image->lock);
	return NULL;
}

static int open_image(const char *pool, const char *name, void **opened, int mode)
{
	struct image *image = calloc(1, sizeof(*image));
	char path[256];

	snprintf(path, sizeof(path), "/%s/%s", pool, name);
	image->file = open(path, mode | O_CLOEXEC);
	image->lost = open("/tmp/lost", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	if (image->file < 0 || image->lost < 0)
		return -errno;
	image->last = &image->first;
	pthread_mutex_init(&image->lock, NULL);
	pthread_cond_init(&image->changed, NULL);
	*opened = image;
	return -pthread_create(&image->thread, NULL, work, image);
}
int rbd_open(void *io, const char *name, void **image, const char *snapshot)
{
	return open_image(io, name, image, O_RDWR);
}
int rbd_open_read_only(void *io, const char *name, void **image, const char *snapshot)
{
	return open_image(io, name, image, O_RDONLY);
}
int rbd_close(void *opened)
{
	struct image *image = opened;

	pthread_mutex_lock(&image->lock);
	image->ends = 1;
	pthread_cond_signal(&image->changed);
	pthread_mutex_unlock(&image->lock);
	pthread_join(image->thread, NULL);
	close(image->file);
	close(image->lost);
	free(image);
	return 0;
}

int rbd_get_size(void *opened, uint64_t *size)
{
	struct image *image = opened;
	struct stat found;

	if (fstat(image->file, &found))
		return -errno;
	*size = found.st_size;
	return S_ISBLK(found.st_mode) && ioctl(image->file, BLKGETSIZE64, size) ? -errno : 0;
}
int rbd_get_features(void *image, uint64_t *features)
{
	*features = 1 << 2; /* RBD_FEATURE_EXCLUSIVE_LOCK */
	return 0;
}
int rbd_get_stripe_unit(void *image, uint64_t *bytes)
{
	*bytes = 4 << 20;
	return 0;
}
int rbd_lock_acquire(void *image, int mode)
{
	((struct image *)image)->has_lock = 1;
	return 0;
}
int rbd_config_image_list(void *image, void *options, int *count)
{
	*count = 0;
	return 0;
}
void rbd_config_image_list_cleanup(void *options, int count) {}
int rbd_lock_get_owners(void *image, int *mode, char **owners, size_t *count) { return -ENOENT; }
void rbd_lock_get_owners_cleanup(char **owners, size_t count) {}
int rbd_lock_break(void *image, int mode, const char *owner) { return -ENOENT; }
int rbd_is_exclusive_lock_owner(void *image, int *is_owner)
{
	*is_owner = ((struct image *)image)->has_lock && !is_lost(image);
	return 0;
}
int rbd_watchers_list(void *image, void *watchers, size_t *count)
{
	*count = 0;
	return 0;
}
void rbd_watchers_list_cleanup(void *watchers, size_t count) {}
int rbd_update_watch(void *image, uint64_t *handle, void (*hear)(void *), void *argument)
{
	*handle = 1;
	return 0;
}
int rbd_update_unwatch(void *image, uint64_t handle) { return 0; }

int rbd_aio_create_completion(void *argument, callback done, void **completion)
{
	struct completion *made = calloc(1, sizeof(*made));

	made->done = done;
	made->argument = argument;
	*completion = made;
	return 0;
}
ssize_t rbd_aio_get_return_value(void *completion) { return ((struct completion *)completion)->result; }
void rbd_aio_release(void *completion) { free(completion); }

static int begin(struct image *image, struct completion *it, enum act act, uint64_t offset, size_t length, void *buffer)
{
	it->act = act;
	it->offset = offset;
	it->length = length;
	it->buffer = buffer;
	pthread_mutex_lock(&image->lock);
	*image->last = it;
	image->last = &it->next;
	pthread_cond_signal(&image->changed);
	pthread_mutex_unlock(&image->lock);
	return 0;
}
int rbd_aio_read(void *image, uint64_t offset, size_t length, char *buffer, void *completion)
{
	return begin(image, completion, READ, offset, length, buffer);
}
int rbd_aio_write(void *image, uint64_t offset, size_t length, const char *buffer, void *completion)
{
	return begin(image, completion, WRITE, offset, length, (void *)buffer);
}
int rbd_aio_discard(void *image, uint64_t offset, uint64_t length, void *completion)
{
	return begin(image, completion, DISCARD, offset, length, NULL);
}
int rbd_aio_flush(void *image, void *completion)
{
	return begin(image, completion, FLUSH, 0, 0, NULL);
}
