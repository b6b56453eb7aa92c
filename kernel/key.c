// SPDX-License-Identifier: GPL-2.0
/*
 * The key, in hexadecimal or from the kernel's keyring, as dm-crypt takes it:
 * <hex>, - (none), or :<bytes>:<logon|user|encrypted|trusted>:<description>.
 */
#include <linux/ctype.h>
#include <linux/key.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <keys/encrypted-type.h>
#include <keys/trusted-type.h>
#include <keys/user-type.h>

#include "compat.h"
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

static int set_raw_key(struct xt_target *xt, const u8 *key)
{
	int r;

	/* What follows may leave neither the old key nor the new one in place. */
	clear_bit(XT_KEY_VALID, &xt->flags);
	if (xt->xts)
		r = xt_xts_set_key(xt->xts, key, xt->key_size);
	else if (xt->tweak_tfm)
		r = xt_engine_set_key(xt, key, xt->key_size);
	else
		r = crypto_skcipher_setkey(xt->tfm, key, xt->key_size);
	if (!r)
		set_bit(XT_KEY_VALID, &xt->flags);
	return r;
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

/* `name` is type:description. */
static int set_keyring_key(struct xt_target *xt, const char *name)
{
	const char *description = strchr(name, ':');
	struct key_type *type;
	struct key *key;
	const u8 *data;
	unsigned int len;
	const char *c;
	char *copy;
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
	copy = kstrdup(name, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	key = request_key(type, description + 1, NULL);
	if (IS_ERR(key)) {
		kfree(copy);
		return PTR_ERR(key);
	}
	down_read(&key->sem);
	r = payload_of(key, type, &data, &len);
	if (!r && len != xt->key_size)
		r = -EINVAL;
	if (!r)
		r = set_raw_key(xt, data);
	up_read(&key->sem);
	key_put(key);
	if (r) {
		kfree(copy);
		return r;
	}
	kfree(xt->key_name);
	xt->key_name = copy;
	return 0;
}

#else

static int set_keyring_key(struct xt_target *xt, const char *name)
{
	return -EOPNOTSUPP;
}

#endif

static int set_hex_key(struct xt_target *xt, const char *string)
{
	u8 *key = kmalloc(max(xt->key_size, 1U), GFP_KERNEL);
	int r;

	if (!key)
		return -ENOMEM;
	r = hex2bin(key, string, xt->key_size) ? -EINVAL : set_raw_key(xt, key);
	kfree_sensitive(key);
	if (!r) {
		kfree(xt->key_name);
		xt->key_name = NULL;
	}
	return r;
}

/* Sets the key, which has the size that the target was made with, and overwrites `string`. */
int xt_set_key(struct xt_target *xt, char *string)
{
	int size = xt_key_size(string);
	int r;

	if (size < 0 || size != xt->key_size)
		r = -EINVAL;
	else if (*string == ':')
		r = set_keyring_key(xt, strchr(string + 1, ':') + 1);
	else
		r = set_hex_key(xt, string);
	memset(string, '0', strlen(string));
	return r;
}

/* Overwrites the key: nothing can be read until another is set. */
int xt_wipe_key(struct xt_target *xt)
{
	int r;

	clear_bit(XT_KEY_VALID, &xt->flags);
	kfree(xt->key_name);
	xt->key_name = NULL;
	if (xt->xts) {
		memzero_explicit(&xt->xts->data, sizeof(xt->xts->data));
		memzero_explicit(&xt->xts->tweak, sizeof(xt->xts->tweak));
		return 0;
	}
	get_random_bytes(xt->noise, xt->key_size);
	if (xt->tweak_tfm)
		r = xt_engine_set_key(xt, xt->noise, xt->key_size);
	else
		r = crypto_skcipher_setkey(xt->tfm, xt->noise, xt->key_size);
	if (r)
		DMERR("the key could not be overwritten: %d; remove the device", r);
	return r;
}
