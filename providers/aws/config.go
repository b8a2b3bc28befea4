// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// Name is the provider's name on command lines.
const Name = "aws"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration. The names of variables that begin
// with AWS_ are those of the AWS SDKs where there is one.
type Config struct {
	AccessKeyID  config.Secret `flag:"aws-access-key-id" env:"AWS_ACCESS_KEY_ID" usage:"access key id; with -aws-secret-key"`
	SecretKey    config.Secret `flag:"aws-secret-key" env:"AWS_SECRET_ACCESS_KEY" usage:"secret access key; use the variable, since command lines can be read by others"`
	SessionToken config.Secret `flag:"aws-session-token" env:"AWS_SESSION_TOKEN" usage:"session token that goes with temporary keys"`
	Profile      string        `flag:"aws-profile" env:"AWS_PROFILE" usage:"profile of the AWS configuration files, whose credentials and region are used"`
	RoleARN      string        `env:"AWS_ROLE_ARN" usage:"role to take with the token of AWS_WEB_IDENTITY_TOKEN_FILE (IRSA)"`
	TokenFile    string        `env:"AWS_WEB_IDENTITY_TOKEN_FILE" usage:"file with the service account's token for AWS_ROLE_ARN"`
	SessionName  string        `env:"AWS_ROLE_SESSION_NAME" default:"outrigger" usage:"name of the session of AWS_ROLE_ARN, which CloudTrail shows"`

	Region         string                 `flag:"aws-region" env:"AWS_REGION" usage:"region; default that of the profile, or of this machine"`
	UseTemplate    bool                   `flag:"use-lt" env:"USE_PODVM_LAUNCHTEMPLATE" default:"false" usage:"launch from -aws-lt-name; what is set here wins over what the template says"`
	TemplateName   string                 `flag:"aws-lt-name" env:"PODVM_LAUNCHTEMPLATE_NAME" default:"kata" usage:"launch template"`
	TemplateVer    string                 `flag:"aws-lt-version" env:"PODVM_LAUNCHTEMPLATE_VERSION" default:"$Default" usage:"version of the launch template: a number, $Default or $Latest"`
	Image          string                 `flag:"imageid" env:"PODVM_AMI_ID" usage:"AMI of the pod VM; required unless the launch template has one"`
	InstanceType   string                 `flag:"instance-type" env:"PODVM_INSTANCE_TYPE" default:"m6a.large" usage:"type of a pod that asks for none; a launch template's wins over the default"`
	InstanceTypes  instancetypes.Patterns `flag:"instance-types" env:"PODVM_INSTANCE_TYPES" usage:"types that pods may ask for besides -instance-type; * and ? are wildcards"`
	Prices         priceList              `flag:"aws-instance-type-prices" env:"AWS_INSTANCE_TYPE_PRICES" usage:"prices by which types are ordered, such as m6a.large=0.0864,m6a.xlarge=0.1728; types without one come last, in order of size"`
	KeyName        string                 `flag:"keyname" env:"SSH_KP_NAME" usage:"SSH key pair; default that of this machine"`
	Subnets        []string               `flag:"subnetid" env:"AWS_SUBNET_ID" usage:"subnet of the VMs; of several, with commas, the next is used when the zone of one has no capacity; default that of this machine"`
	SecurityGroups []string               `flag:"securitygroupids" env:"AWS_SG_IDS" usage:"security groups, with commas; default those of this machine"`
	Tags           map[string]string      `flag:"tags" env:"TAGS" usage:"tags of everything that is made, as key=value,key=value"`

	UsePublicIP    bool   `flag:"use-public-ip" env:"USE_PUBLIC_IP" default:"false" usage:"give VMs a public address and reach them by it"`
	ElasticIP      bool   `flag:"aws-elastic-ip" env:"AWS_ELASTIC_IP" default:"false" usage:"with -use-public-ip: an Elastic IP, which stays when the VM is stopped; one by default in the second interface's case"`
	RootVolumeSize int64  `flag:"root-volume-size" env:"ROOT_VOLUME_SIZE" default:"30" unit:"GiB" min:"0" max:"65536" usage:"size of the root volume; 0 is that of the image"`
	RootVolumeType string `flag:"aws-root-volume-type" env:"AWS_ROOT_VOLUME_TYPE" choices:"gp2,gp3,io1,io2,standard" usage:"type of the root volume; default that of the image"`
	DiskKey        string `flag:"aws-kms-key-id" env:"AWS_KMS_KEY_ID" usage:"KMS key (id, alias or ARN) that encrypts the volumes, root and template's; default the account's or the image's choice"`
	DisableCVM     bool   `flag:"disable-cvm" env:"DISABLECVM" default:"false" usage:"make ordinary VMs; without it they are confidential (AMD SEV-SNP)"`
	Spot           bool   `flag:"aws-spot" env:"AWS_SPOT" default:"false" usage:"make spot instances, which the cloud may end at any time"`
	SpotMaxPrice   string `flag:"aws-spot-max-price" env:"AWS_SPOT_MAX_PRICE" usage:"most to pay for a spot instance per hour, in US dollars; default the price on demand"`
	HopLimit       int64  `flag:"aws-metadata-hop-limit" env:"AWS_METADATA_HOP_LIMIT" default:"1" min:"1" max:"64" usage:"how far replies of the VM's metadata service travel; with 1 pods cannot read it"`

	Endpoint         string `flag:"aws-endpoint-url" env:"AWS_ENDPOINT_URL_EC2" usage:"URL of EC2; default that of the region"`
	STSEndpoint      string `flag:"aws-sts-endpoint-url" env:"AWS_ENDPOINT_URL_STS" usage:"URL of STS, where AWS_ROLE_ARN is taken; default that of the region"`
	BlocksEndpoint   string `env:"AWS_ENDPOINT_URL_EBS" usage:"URL of the EBS direct APIs, which images are imported by; default that of the region"`
	QuotasEndpoint   string `env:"AWS_ENDPOINT_URL_SERVICE_QUOTAS" usage:"URL of Service Quotas; default that of the region"`
	AnyEndpoint      string `env:"AWS_ENDPOINT_URL" usage:"URL of what has none of its own"`
	CABundle         string `flag:"aws-ca-bundle" env:"AWS_CA_BUNDLE" usage:"PEM file with the authorities to trust in place of the system's"`
	MetadataDisabled bool   `env:"AWS_EC2_METADATA_DISABLED" default:"false" usage:"do not ask this machine's metadata service for what is not set"`
	MetadataEndpoint string `env:"AWS_EC2_METADATA_SERVICE_ENDPOINT" usage:"URL of this machine's metadata service"`
	ConfigFile       string `env:"AWS_CONFIG_FILE" usage:"configuration file for -aws-profile; default ~/.aws/config"`
	CredentialsFile  string `env:"AWS_SHARED_CREDENTIALS_FILE" usage:"credentials file for -aws-profile; default ~/.aws/credentials"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).ForImport(forImport)
}

// forImport stands in for settings of instances, which imports do not use.
//
// A launch template would have image and subnet.
func forImport(c *Config) {
	c.UseTemplate, c.Image, c.Subnets = true, "", nil
}

// timing is how patient the provider is; tests are less so.
type timing struct {
	// settle is how long what is not found may still be on its way: EC2's
	// documentation of eventual consistency advises to ask again with back-off
	// and gives no bound.
	settle time.Duration
	// token is settle for an instance that is known to exist by its token.
	token time.Duration
	// pause is the first and pauseMax the longest wait between two questions.
	pause, pauseMax time.Duration
	// retryMax is the longest wait of the SDK between two attempts.
	retryMax time.Duration
	// fresh is how long images, templates and types are remembered.
	fresh time.Duration
	// call bounds one attempt of a call.
	call time.Duration
	// stray is how old a volume without an instance must be.
	stray time.Duration
	// quota bounds the question to Service Quotas, which networks without a way
	// to the internet may not reach.
	quota time.Duration
}

var usual = timing{
	settle: 5 * time.Second, token: time.Minute, pause: 200 * time.Millisecond, pauseMax: 3 * time.Second,
	retryMax: 20 * time.Second, fresh: 5 * time.Minute, call: 60 * time.Second, stray: 10 * time.Minute, quota: 10 * time.Second,
}
