// SPDX-License-Identifier: GPL-2.0
/* The table line, which is dm-crypt's. */
#include <linux/log2.h>

#include "flight.h"

static int set_iv_mode(struct dm_target *ti, struct xt_target *xt, const char *mode)
{
	if (!strcmp(mode, "plain64")) {
		xt->iv_mode = XT_IV_PLAIN64;
	} else if (!strcmp(mode, "plain")) {
		xt->iv_mode = XT_IV_PLAIN;
	} else if (!strcmp(mode, "plain64be")) {
		xt->iv_mode = XT_IV_PLAIN64BE;
	} else if (!strcmp(mode, "null")) {
		xt->iv_mode = XT_IV_NONE;
	} else {
		ti->error = "Unknown IV mode: plain64, plain, plain64be, null or essiv:<hash>";
		return -EINVAL;
	}
	return 0;
}

/*
 * `string` is <cipher>-<mode>-<IV mode>[:<options>],
 * capi:<name in the crypto API>-<IV mode>[:<options>], or
 * engine:<name of ECB in the crypto API>-<IV mode>. Leaves the cipher's name
 * in the crypto API in `api`, and the IV mode in the target.
 */
int xt_parse_cipher(struct dm_target *ti, struct xt_target *xt, const char *string,
		    char *api, size_t api_size, bool *engine)
{
	char copy[2 * CRYPTO_MAX_ALG_NAME], base[CRYPTO_MAX_ALG_NAME];
	char *name = copy, *mode, *iv_mode, *iv_options;
	int len;

	ti->error = "Unknown cipher: <cipher>-<mode>-<IV mode>, <capi:|engine:><name>-<IV mode>";
	*engine = false;
	if (strscpy(copy, string, sizeof(copy)) < 0)
		return -EINVAL;
	if (!strncmp(copy, "capi:", 5)) {
		name += 5;
	} else if (!strncmp(copy, "engine:", 7)) {
		*engine = true;
		name += 7;
	}
	/* First, since a hash's name may have a hyphen as well. */
	iv_options = strrchr(name, ':');
	if (iv_options)
		*iv_options++ = '\0';
	iv_mode = strrchr(name, '-');
	if (!iv_mode)
		return -EINVAL;
	*iv_mode++ = '\0';

	if (name != copy) {
		len = strscpy(base, name, sizeof(base));
		if (len <= 0)
			return -EINVAL;
	} else {
		mode = strchr(copy, '-');
		if (!mode || strchr(mode + 1, '-') || strchr(copy, ':') || strchr(copy, '('))
			return -EINVAL;
		*mode++ = '\0';
		if (snprintf(base, sizeof(base), "%s(%s)", mode, copy) >= sizeof(base))
			return -EINVAL;
	}
	if (!strcmp(iv_mode, "essiv") && *engine) {
		ti->error = "An engine does XTS, which has no use for essiv";
		return -EINVAL;
	}
	if (!strcmp(iv_mode, "essiv")) {
		if (!iv_options || !*iv_options) {
			ti->error = "essiv needs a hash: essiv:sha256";
			return -EINVAL;
		}
		len = snprintf(api, api_size, "essiv(%s,%s)", base, iv_options);
		iv_mode = "plain64";
	} else {
		if (iv_options) {
			ti->error = "This IV mode takes no options";
			return -EINVAL;
		}
		len = snprintf(api, api_size, "%s", base);
	}
	if (len >= api_size)
		return -EINVAL;
	return set_iv_mode(ti, xt, iv_mode);
}

static int parse_sector_size(struct dm_target *ti, struct xt_options *options, const char *value)
{
	unsigned int size;

	if (kstrtouint(value, 10, &size) || size < SECTOR_SIZE || size > 4096 ||
	    !is_power_of_2(size)) {
		ti->error = "sector_size is 512, 1024, 2048 or 4096";
		return -EINVAL;
	}
	if (ti->len & ((size >> SECTOR_SHIFT) - 1)) {
		ti->error = "The length is no multiple of sector_size";
		return -EINVAL;
	}
	options->sector_size = size;
	return 0;
}

/* 512, 1024, ... 1048576. */
static int parse_request_size(struct dm_target *ti, struct xt_options *options, const char *value)
{
	unsigned int size;

	if (kstrtouint(value, 10, &size) || size < SECTOR_SIZE || size > XT_RUN_BYTES ||
	    !is_power_of_2(size)) {
		ti->error = "request_size is a power of two from 512 to 1048576";
		return -EINVAL;
	}
	options->request_size = size;
	return 0;
}

static int parse_in_flight(struct dm_target *ti, struct xt_options *options, const char *value)
{
	unsigned int count;

	if (kstrtouint(value, 10, &count) || !count || count > XT_MAX_IN_FLIGHT) {
		ti->error = "in_flight is 1 to 64";
		return -EINVAL;
	}
	options->in_flight = count;
	return 0;
}

int xt_parse_options(struct dm_target *ti, struct xt_options *options, unsigned int argc,
		     char **argv)
{
	static const struct dm_arg count_arg[] = {
		{ 0, 12, "Wrong number of options" },
	};
	struct dm_arg_set args = { .argc = argc, .argv = argv };
	unsigned int count;
	int r;

	options->sector_size = SECTOR_SIZE;
	options->in_flight = XT_IN_FLIGHT;
	if (!argc)
		return 0;
	r = dm_read_arg_group(count_arg, &args, &count, &ti->error);
	if (r)
		return r;
	while (count--) {
		const char *option = dm_shift_arg(&args);

		if (!option) {
			ti->error = "Fewer options than their number says";
			return -EINVAL;
		}
		if (!strcasecmp(option, "allow_discards")) {
			options->allow_discards = true;
		} else if (!strcasecmp(option, "same_cpu_crypt")) {
			options->same_cpu_crypt = true;
		} else if (!strcasecmp(option, "high_priority")) {
			options->high_priority = true;
		} else if (!strcasecmp(option, "submit_from_crypt_cpus")) {
			options->submit_from_crypt_cpus = true;
		} else if (!strcasecmp(option, "no_read_workqueue")) {
			options->no_read_workqueue = true;
		} else if (!strcasecmp(option, "no_write_workqueue")) {
			options->no_write_workqueue = true;
		} else if (!strcasecmp(option, "write_workqueue")) {
			options->write_workqueue = true;
		} else if (!strcasecmp(option, "iv_large_sectors")) {
			options->iv_large_sectors = true;
		} else if (!strncasecmp(option, "sector_size:", 12)) {
			r = parse_sector_size(ti, options, option + 12);
			if (r)
				return r;
		} else if (!strncasecmp(option, "request_size:", 13)) {
			r = parse_request_size(ti, options, option + 13);
			if (r)
				return r;
		} else if (!strncasecmp(option, "in_flight:", 10)) {
			r = parse_in_flight(ti, options, option + 10);
			if (r)
				return r;
		} else {
			ti->error = "Unknown option";
			return -EINVAL;
		}
	}
	if (args.argc) {
		ti->error = "More options than their number says";
		return -EINVAL;
	}
	if (options->write_workqueue && options->no_write_workqueue) {
		ti->error = "write_workqueue and no_write_workqueue exclude each other";
		return -EINVAL;
	}
	return 0;
}

/*
 * The table line again. A key in hexadecimal is left out, as "-": this line
 * is shown to people.
 */
void xt_emit_table(struct dm_target *ti, struct xt_target *xt, char *result,
		   unsigned int maxlen, unsigned int *size)
{
	const struct xt_options *o = &xt->options;
	unsigned int sz = *size;
	int count = o->allow_discards + o->same_cpu_crypt + o->high_priority +
		    o->submit_from_crypt_cpus + o->no_read_workqueue + o->no_write_workqueue +
		    o->write_workqueue + o->iv_large_sectors +
		    (o->sector_size != SECTOR_SIZE) + !!o->request_size +
		    (o->in_flight != XT_IN_FLIGHT);

	DMEMIT("%s ", xt->cipher);
	/* A message may give the key another name meanwhile. */
	mutex_lock(&xt->key_lock);
	if (xt->key_name)
		DMEMIT(":%u:%s", xt->key_size, xt->key_name);
	else
		DMEMIT("-");
	mutex_unlock(&xt->key_lock);
	DMEMIT(" %llu %s %llu", xt->iv_offset, xt->dev->name, (unsigned long long)xt->start);
	if (count) {
		DMEMIT(" %d", count);
		if (o->allow_discards)
			DMEMIT(" allow_discards");
		if (o->same_cpu_crypt)
			DMEMIT(" same_cpu_crypt");
		if (o->high_priority)
			DMEMIT(" high_priority");
		if (o->submit_from_crypt_cpus)
			DMEMIT(" submit_from_crypt_cpus");
		if (o->no_read_workqueue)
			DMEMIT(" no_read_workqueue");
		if (o->no_write_workqueue)
			DMEMIT(" no_write_workqueue");
		if (o->write_workqueue)
			DMEMIT(" write_workqueue");
		if (o->sector_size != SECTOR_SIZE)
			DMEMIT(" sector_size:%u", o->sector_size);
		if (o->iv_large_sectors)
			DMEMIT(" iv_large_sectors");
		if (o->request_size)
			DMEMIT(" request_size:%u", o->request_size);
		if (o->in_flight != XT_IN_FLIGHT)
			DMEMIT(" in_flight:%u", o->in_flight);
	}
	*size = sz;
}

/*
 * For IMA's log, with dm-crypt's words: what would be measured of the same volume there.
 * Key parts and extra keys are those of modes that we do not have.
 */
void xt_emit_ima(const struct xt_target *xt, char *result, unsigned int maxlen, unsigned int *size)
{
	const struct xt_options *o = &xt->options;
	unsigned int sz = *size;

	DMEMIT(",allow_discards=%c", o->allow_discards ? 'y' : 'n');
	DMEMIT(",same_cpu_crypt=%c", o->same_cpu_crypt ? 'y' : 'n');
	DMEMIT(",high_priority=%c", o->high_priority ? 'y' : 'n');
	DMEMIT(",submit_from_crypt_cpus=%c", o->submit_from_crypt_cpus ? 'y' : 'n');
	DMEMIT(",no_read_workqueue=%c", o->no_read_workqueue ? 'y' : 'n');
	DMEMIT(",no_write_workqueue=%c", o->no_write_workqueue ? 'y' : 'n');
	DMEMIT(",iv_large_sectors=%c", o->iv_large_sectors ? 'y' : 'n');
	if (o->sector_size != SECTOR_SIZE)
		DMEMIT(",sector_size=%u", o->sector_size);
	DMEMIT(",cipher_string=%s,key_size=%u", xt->cipher, xt->key_size);
	DMEMIT(",key_parts=1,key_extra_size=0,key_mac_size=0;");
	*size = sz;
}
