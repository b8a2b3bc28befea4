// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// bad returns the error for a setting, by its flag or variable.
func bad(name, format string, args ...any) error { return config.Wrong[Config](name, format, args...) }

var (
	regionSyntax = regexp.MustCompile(`^[a-z]{2,}(-[a-z0-9]+)+$`)
	typeSyntax   = regexp.MustCompile(`^ecs\.[a-z0-9-]+(\.[a-z0-9-]+)+$`)
	// roleSyntax and providerSyntax are RAM's resource names.
	roleSyntax     = regexp.MustCompile(`^acs:ram::\d+:role/[\w.-]+$`)
	providerSyntax = regexp.MustCompile(`^acs:ram::\d+:oidc-provider/[\w.-]+$`)
	sessionSyntax  = regexp.MustCompile(`^[\w.@-]{2,64}$`)
)

// maxOwnTags leaves room for the owner's tags and ours among the cloud's 20.
const maxOwnTags = 10

// validate completes c and reports everything that is wrong whatever the cloud
// says.
func (c *Config) validate() error {
	errs := []error{
		config.Check(*c), c.mergeInstanceType(), c.validateTags(), c.validateSpot(),
		resource("vpc-id", "vpc-", c.VPCID),
		resource("vswitch-id", "vsw-", c.VSwitchIDs...), resource("security-group-ids", "sg-", c.SecurityGroups...),
		endpoint("alibabacloud-ecs-endpoint", c.ECSEndpoint), endpoint("alibabacloud-vpc-endpoint", c.VPCEndpoint),
		endpoint("alibabacloud-sts-endpoint", c.STSEndpoint), endpoint("alibabacloud-slb-endpoint", c.SLBEndpoint),
	}
	if !regionSyntax.MatchString(c.Region) {
		errs = append(errs, bad("region", "%q is not a region such as cn-beijing", c.Region))
	}
	return errors.Join(errs...)
}

// mergeInstanceType lets the earlier name of the setting stand for it.
func (c *Config) mergeInstanceType() error {
	if earlier := c.EarlierInstanceType; earlier != "" && earlier != c.InstanceType {
		if c.InstanceType != config.Defaults[Config]().InstanceType {
			return bad("instance-type", "%q, but INSTANCE_TYPE, its earlier name, is %q: set one of them", c.InstanceType, earlier)
		}
		c.InstanceType = earlier
	}
	if !typeSyntax.MatchString(c.InstanceType) {
		return bad("instance-type", "%q is not an instance type such as ecs.g8i.xlarge (INSTANCE_TYPE is read too)", c.InstanceType)
	}
	return nil
}

func (c *Config) validateTags() error {
	if len(c.Tags) > maxOwnTags {
		return bad("tags", "%d tags; the cloud allows 20 in all, and %d of them are needed", len(c.Tags), 20-maxOwnTags)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Tags)) {
		value := c.Tags[key]
		if err := checkTag(key, value); err != nil {
			return bad("tags", "%v", err)
		}
		if len(value) > maxTag {
			return bad("tags", "the value of %q has more than %d characters", key, maxTag)
		}
		if strings.HasPrefix(key, ownPrefix) {
			return bad("tags", "%q: keys that begin with %s are used to find instances", key, ownPrefix)
		}
	}
	return nil
}

func (c *Config) validateSpot() error {
	if c.Spot != spotLimited {
		if c.SpotLimit != "" {
			return bad("alibabacloud-spot-price-limit", "it is for -alibabacloud-spot=%s", spotLimited)
		}
		return nil
	}
	if limit, err := strconv.ParseFloat(c.SpotLimit, 32); err != nil || !(limit > 0) {
		return bad("alibabacloud-spot-price-limit", "%q is not a price per hour such as 0.97", c.SpotLimit)
	}
	return nil
}

// resource checks ids that have the prefix of their kind.
func resource(name, prefix string, ids ...string) error {
	for _, id := range ids {
		rest, ok := strings.CutPrefix(id, prefix)
		if id != "" && (!ok || rest == "" || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "") {
			return bad(name, "%q is not an id such as %s2ze1w9aj2aonwckv64cw", id, prefix)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		return bad(name, "an id is there twice")
	}
	return nil
}

func endpoint(name, host string) error {
	if strings.ContainsAny(host, "/@?# ") {
		return bad(name, "%q is not a host or host:port; the scheme is always https", host)
	}
	if _, port, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return bad(name, "%q has no valid port", host)
		}
	}
	return nil
}

// static are the keys of the configuration; spellings that differ are an error.
type static struct{ id, secret, token string }

func (c *Config) static() (static, error) {
	var s static
	var errs []error
	for _, one := range []struct {
		flag, sdk    string
		value, other config.Secret
		into         *string
	}{
		{"alibabacloud-access-key-id", "ALIBABA_CLOUD_ACCESS_KEY_ID", c.AccessKeyID, c.SDKAccessKeyID, &s.id},
		{"alibabacloud-secret-access-key", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", c.AccessKeySecret, c.SDKAccessKeySecret, &s.secret},
		{"alibabacloud-security-token", "ALIBABA_CLOUD_SECURITY_TOKEN", c.SecurityToken, c.SDKSecurityToken, &s.token},
	} {
		value, other := strings.TrimSpace(one.value.Reveal()), strings.TrimSpace(one.other.Reveal())
		if value != "" && other != "" && value != other {
			errs = append(errs, bad(one.flag, "it is not what %s is: set one of them", one.sdk))
		}
		*one.into = value
		if value == "" {
			*one.into = other
		}
	}
	switch {
	case s.id != "" && s.secret == "":
		errs = append(errs, bad("alibabacloud-secret-access-key", "the access key has no secret (ALIBABA_CLOUD_ACCESS_KEY_SECRET is read too)"))
	case s.id == "" && (s.secret != "" || s.token != ""):
		errs = append(errs, bad("alibabacloud-access-key-id", "there is a secret or a token without an access key (ALIBABA_CLOUD_ACCESS_KEY_ID is read too)"))
	}
	return s, errors.Join(errs...)
}

// validateRole checks the settings of RRSA, which go together.
func (c *Config) validateRole() error {
	var errs []error
	for _, one := range []struct {
		flag, value, example string
		syntax               *regexp.Regexp
	}{
		{"alibabacloud-role-arn", c.RoleARN, "acs:ram::1234567890123456:role/caa-alibaba", roleSyntax},
		{"alibabacloud-oidc-provider-arn", c.OIDCProviderARN, "acs:ram::1234567890123456:oidc-provider/ack-rrsa-c1234", providerSyntax},
		{"alibabacloud-oidc-token-file", c.OIDCTokenFile, "/var/run/secrets/ack.alibabacloud.com/rrsa-tokens/token", regexp.MustCompile(`^/`)},
		{"alibabacloud-role-session-name", c.RoleSession, "outrigger", sessionSyntax},
	} {
		switch {
		case one.value == "":
			errs = append(errs, bad(one.flag, "it is not set, and a role needs it"))
		case !one.syntax.MatchString(one.value):
			errs = append(errs, bad(one.flag, "%q is not like %s", one.value, one.example))
		}
	}
	return errors.Join(errs...)
}

func errNoCredentials() error {
	return fmt.Errorf("%w: no credentials: set ALIBABACLOUD_ACCESS_KEY_ID and ALIBABACLOUD_ACCESS_KEY_SECRET (or, as Alibaba's tools spell them, "+
		"ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET), or for RRSA "+
		"ALIBABA_CLOUD_ROLE_ARN, ALIBABA_CLOUD_OIDC_PROVIDER_ARN and ALIBABA_CLOUD_OIDC_TOKEN_FILE", provider.ErrInvalidArgument)
}
