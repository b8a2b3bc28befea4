// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// bad names a setting by its flag and its variable.
func bad(name, format string, args ...any) error { return config.Wrong[Config](name, format, args...) }

// The syntax of EC2's ids: a prefix and 8 or 17 hexadecimal digits.
var (
	imageSyntax    = regexp.MustCompile(`^ami-[0-9a-f]{8}([0-9a-f]{9})?$`)
	subnetSyntax   = regexp.MustCompile(`^subnet-[0-9a-f]{8}([0-9a-f]{9})?$`)
	groupSyntax    = regexp.MustCompile(`^sg-[0-9a-f]{8}([0-9a-f]{9})?$`)
	instanceSyntax = regexp.MustCompile(`^i-[0-9a-f]{8}([0-9a-f]{9})?$`)
	volumeSyntax   = regexp.MustCompile(`^vol-[0-9a-f]{8}([0-9a-f]{9})?$`)
	snapshotSyntax = regexp.MustCompile(`^snap-[0-9a-f]{8}([0-9a-f]{9})?$`)
	regionSyntax   = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d+$`)
	roleSyntax     = regexp.MustCompile(`^arn:[a-z0-9-]+:iam::\d{12}:role/[\w+=,.@/-]+$`)
	sessionSyntax  = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
	versionSyntax  = regexp.MustCompile(`^(\d+|\$Default|\$Latest)$`)
)

// validate reports everything that is wrong whatever the cloud says.
func (c Config) validate() error {
	errs := []error{
		c.validateKeys(), c.validateNetwork(), c.validateLaunch(), c.validateTags(),
		validURL("aws-endpoint-url", c.Endpoint), validURL("aws-sts-endpoint-url", c.STSEndpoint),
		validURL("AWS_ENDPOINT_URL_EBS", c.BlocksEndpoint), validURL("AWS_ENDPOINT_URL_SERVICE_QUOTAS", c.QuotasEndpoint),
		validURL("AWS_ENDPOINT_URL", c.AnyEndpoint), validURL("AWS_EC2_METADATA_SERVICE_ENDPOINT", c.MetadataEndpoint),
	}
	if c.CABundle != "" {
		if _, err := os.ReadFile(c.CABundle); err != nil {
			errs = append(errs, bad("aws-ca-bundle", "%v", err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) validateKeys() error {
	var errs []error
	switch {
	case c.AccessKeyID != "" && c.SecretKey == "":
		errs = append(errs, bad("aws-secret-key", "it is not set, but -aws-access-key-id is"))
	case c.AccessKeyID == "" && c.SecretKey != "":
		errs = append(errs, bad("aws-access-key-id", "it is not set, but -aws-secret-key is"))
	case c.AccessKeyID == "" && c.SessionToken != "":
		errs = append(errs, bad("aws-session-token", "it needs -aws-access-key-id and -aws-secret-key"))
	}
	switch {
	case c.RoleARN != "" && c.TokenFile == "":
		errs = append(errs, bad("AWS_WEB_IDENTITY_TOKEN_FILE", "it is not set, but AWS_ROLE_ARN is"))
	case c.RoleARN == "" && c.TokenFile != "":
		errs = append(errs, bad("AWS_ROLE_ARN", "it is not set, but AWS_WEB_IDENTITY_TOKEN_FILE is"))
	default:
		errs = append(errs, config.Match[Config]("AWS_ROLE_ARN", roleSyntax, "an ARN of a role, such as arn:aws:iam::123456789012:role/name", c.RoleARN))
	}
	if c.RoleARN != "" && !sessionSyntax.MatchString(c.SessionName) {
		errs = append(errs, bad("AWS_ROLE_SESSION_NAME", "%q: want 2 to 64 letters, digits and _+=,.@-", c.SessionName))
	}
	return errors.Join(errs...)
}

func (c Config) validateNetwork() error {
	errs := []error{
		config.Match[Config]("aws-region", regionSyntax, "a region, such as eu-central-1", c.Region),
		config.Match[Config]("subnetid", subnetSyntax, "an id of a subnet, such as subnet-0123456789abcdef0", c.Subnets...),
		config.Match[Config]("securitygroupids", groupSyntax, "an id of a security group, such as sg-0123456789abcdef0", c.SecurityGroups...),
	}
	if c.Region == "" && c.Profile == "" && c.MetadataDisabled {
		errs = append(errs, bad("aws-region", "it is not set, and the metadata service must not be asked (AWS_EC2_METADATA_DISABLED)"))
	}
	if len(c.Subnets) == 0 && !c.UseTemplate && c.MetadataDisabled {
		errs = append(errs, bad("subnetid", "it is not set, and the metadata service must not be asked (AWS_EC2_METADATA_DISABLED)"))
	}
	if c.ElasticIP && !c.UsePublicIP {
		errs = append(errs, bad("aws-elastic-ip", "it needs -use-public-ip"))
	}
	return errors.Join(errs...)
}

func (c Config) validateLaunch() error {
	errs := []error{config.Match[Config]("imageid", imageSyntax, "an id of an AMI, such as ami-0123456789abcdef0", c.Image)}
	if c.Image == "" && !c.UseTemplate {
		errs = append(errs, bad("imageid", "it is required unless a launch template has it (-use-lt)"))
	}
	if c.UseTemplate && c.TemplateName == "" {
		errs = append(errs, bad("aws-lt-name", "it is empty"))
	}
	if !versionSyntax.MatchString(c.TemplateVer) {
		errs = append(errs, bad("aws-lt-version", "%q is neither a number nor $Default nor $Latest", c.TemplateVer))
	}
	if c.InstanceType == "" {
		errs = append(errs, bad("instance-type", "it is empty"))
	}
	if c.SpotMaxPrice != "" {
		if price, err := strconv.ParseFloat(c.SpotMaxPrice, 64); err != nil || !(price > 0) {
			errs = append(errs, bad("aws-spot-max-price", "%q is not a price, such as 0.05", c.SpotMaxPrice))
		}
		if !c.Spot {
			errs = append(errs, bad("aws-spot-max-price", "it needs -aws-spot"))
		}
	}
	return errors.Join(errs...)
}

func validURL(name, text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return bad(name, "%q is not a URL, such as https://ec2.eu-central-1.amazonaws.com", text)
	}
	return nil
}

// Limits of EC2's tags (EC2 user guide, "Tag restrictions").
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
)

// ownTags is how many tags an instance has at most besides the configured
// ones: the owner's, its name, how it is reached, whose address it is.
const ownTags = 12

func (c Config) validateTags() error {
	var errs []error
	for key, value := range c.Tags {
		if err := checkTag(key, value); err != nil {
			errs = append(errs, bad("tags", "%v", err))
		}
		if key == tagName || strings.HasPrefix(key, "outrigger-") {
			errs = append(errs, bad("tags", "key %q is the provider's own", key))
		}
	}
	if len(c.Tags) > maxTags-ownTags {
		errs = append(errs, bad("tags", "%d tags: EC2 takes %d, of which %d are the provider's", len(c.Tags), maxTags, ownTags))
	}
	return errors.Join(errs...)
}

func checkTag(key, value string) error {
	switch {
	case key == "" || len([]rune(key)) > maxTagKey:
		return fmt.Errorf("tag key %.64q: want 1 to %d characters", key, maxTagKey)
	case len([]rune(value)) > maxTagValue:
		return fmt.Errorf("tag %q: its value has more than %d characters", key, maxTagValue)
	case strings.HasPrefix(strings.ToLower(key), "aws:"):
		return fmt.Errorf("tag key %q: those that begin with aws: are the cloud's", key)
	}
	return nil
}

// priceList is what types cost per hour.
type priceList map[string]float64

var _ encoding.TextUnmarshaler = (*priceList)(nil)

// UnmarshalText reads type=price,type=price.
func (l *priceList) UnmarshalText(text []byte) error {
	list := priceList{}
	for part := range strings.SplitSeq(string(text), ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, price, _ := strings.Cut(strings.TrimSpace(part), "=")
		value, err := strconv.ParseFloat(price, 64)
		if name == "" || err != nil || !(value >= 0) {
			return fmt.Errorf("%w: %q is not type=price, such as m6a.large=0.0864", provider.ErrInvalidArgument, part)
		}
		list[name] = value
	}
	*l = list
	return nil
}
