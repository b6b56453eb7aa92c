// SPDX-License-Identifier: GPL-2.0
/*
 * The key, in hexadecimal or from the kernel's keyring, as dm-crypt takes it:
 * <hex>, - (none), or :<bytes>:<logon|user|encrypted|trusted>:<description>.
 */
#include <linux/ctype.h>
#include <linux/key.h>
#include <linux/slab.h>
#include <keys/encrypted-type.h>
#include <keys/trusted-type.h>
#include <keys/user-type.h>

#include "xtent.h"

#define MAX_KEY 512

/* Of the key that `string` gives, in bytes. */
int xt_key_size(const char *string)
{
	unsigned int size;
	size_t len;
	char colon;

	if (!strcmp(string, "-"))
		return 0;
	if (*string == ':') {
		if (sscanf(string, ":%u%c", &size, &colon) != 2 || colon != ':' || size > MAX_KEY)
			return -EINVAL;
		return size;
	}
	len = strlen(string);
	if (len % 2 || len / 2 > MAX_KEY)
		return -EINVAL;
	return len / 2;
}

#ifdef CONFIG_KEYS

static int payload_of(struct key *key, const struct key_type *type, const u8 **data,
		      unsigned int *len)
{
	if (type == &key_type_logon || type == &key_type_user) {
		const struct user_key_payload *payload = user_key_payload_locked(key);

		if (!payload)
			return -EKEYREVOKED;
		*data = payload->data;
		*len = payload->datalen;
		return 0;
	}
#if IS_REACHABLE(CONFIG_ENCRYPTED_KEYS)
	if (type == &key_type_encrypted) {
		const struct encrypted_key_payload *payload = key->payload.data[0];

		if (!payload)
			return -EKEYREVOKED;
		*data = payload->decrypted_data;
		*len = payload->decrypted_datalen;
		return 0;
	}
#endif
#if IS_REACHABLE(CONFIG_TRUSTED_KEYS)
	if (type == &key_type_trusted) {
		const struct trusted_key_payload *payload = key->payload.data[0];

		if (!payload)
			return -EKEYREVOKED;
		*data = payload->key;
		*len = payload->key_len;
		return 0;
	}
#endif
	return -EINVAL;
}

static struct key_type *find_type(const char *name, size_t len)
{
	static struct {
		const char *name;
		struct key_type *type;
	} const types[] = {
		{ "logon", &key_type_logon },
		{ "user", &key_type_user },
#if IS_REACHABLE(CONFIG_ENCRYPTED_KEYS)
		{ "encrypted", &key_type_encrypted },
#endif
#if IS_REACHABLE(CONFIG_TRUSTED_KEYS)
		{ "trusted", &key_type_trusted },
#endif
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(types); i++)
		if (strlen(types[i].name) == len && !strncmp(name, types[i].name, len))
			return types[i].type;
	return NULL;
}

/* `name` is type:description. May wait for a program that makes the key. */
static int read_keyring_key(const struct xt_target *xt, const char *name, struct xt_key *result)
{
	const char *description = strchr(name, ':');
	struct key_type *type;
	struct key *key;
	const u8 *data;
	unsigned int len;
	const char *c;
	int r;

	/* A table line has no way to quote blanks. */
	for (c = name; *c; c++)
		if (isspace(*c))
			return -EINVAL;
	if (!description || !description[1])
		return -EINVAL;
	type = find_type(name, description - name);
	if (!type)
		return -EINVAL;
	result->name = kstrdup(name, GFP_KERNEL);
	if (!result->name)
		return -ENOMEM;
	key = request_key(type, description + 1, NULL);
	if (IS_ERR(key))
		return PTR_ERR(key);
	down_read(&key->sem);
	r = payload_of(key, type, &data, &len);
	if (!r && len != xt->key_size)
		r = -EINVAL;
	if (!r)
		memcpy(result->bytes, data, len);
	up_read(&key->sem);
	key_put(key);
	return r;
}

#else

static int read_keyring_key(const struct xt_target *xt, const char *name, struct xt_key *result)
{
	return -EOPNOTSUPP;
}

#endif

/*
 * The key that `string` gives, which has the size that the target was made with; and
 * overwrites `string`. xt_key_forget() comes afterwards, whatever this says.
 */
int xt_key_read(const struct xt_target *xt, char *string, struct xt_key *key)
{
	int size = xt_key_size(string);
	int r = -EINVAL;

	if (size >= 0 && size == xt->key_size) {
		key->bytes = kmalloc(max(size, 1), GFP_KERNEL);
		if (!key->bytes)
			r = -ENOMEM;
		else if (*string == ':')
			r = read_keyring_key(xt, strchr(string + 1, ':') + 1, key);
		else if (!hex2bin(key->bytes, string, size))
			r = 0;
	}
	memset(string, '0', strlen(string));
	return r;
}

void xt_key_forget(struct xt_key *key)
{
	kfree_sensitive(key->bytes);
	kfree(key->name);
}

/* Makes it the target's, which takes its name. */
int xt_key_set(struct xt_target *xt, struct xt_key *key)
{
	int r;

	/* What follows may leave neither the old key nor the new one in place. */
	clear_bit(XT_KEY_VALID, &xt->flags);
	r = xt->ops->set_key(xt, key->bytes, xt->key_size);
	if (r)
		return r;
	set_bit(XT_KEY_VALID, &xt->flags);
	swap(xt->key_name, key->name);
	return 0;
}

/* Overwrites the key: nothing can be read until another is set. */
int xt_key_wipe(struct xt_target *xt)
{
	int r;

	clear_bit(XT_KEY_VALID, &xt->flags);
	kfree(xt->key_name);
	xt->key_name = NULL;
	r = xt->ops->wipe_key(xt);
	if (r)
		DMERR("the key could not be overwritten: %d; remove the device", r);
	return r;
}
