// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"log/slog"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Name is the provider's name on command lines.
const Name = "alibabacloud"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration.
type Config struct {
	AccessKeyID     config.Secret `flag:"alibabacloud-access-key-id" env:"ALIBABACLOUD_ACCESS_KEY_ID" usage:"access key, where there is no role"`
	AccessKeySecret config.Secret `flag:"alibabacloud-secret-access-key" env:"ALIBABACLOUD_ACCESS_KEY_SECRET" usage:"secret of the access key"`
	SecurityToken   config.Secret `flag:"alibabacloud-security-token" env:"ALIBABACLOUD_SECURITY_TOKEN" usage:"STS token of a temporary access key"`
	RoleARN         string        `flag:"alibabacloud-role-arn" env:"ALIBABA_CLOUD_ROLE_ARN" usage:"RAM role to take by the token of a service account (RRSA)"`
	OIDCProviderARN string        `flag:"alibabacloud-oidc-provider-arn" env:"ALIBABA_CLOUD_OIDC_PROVIDER_ARN" usage:"identity provider that vouches for the token"`
	OIDCTokenFile   string        `flag:"alibabacloud-oidc-token-file" env:"ALIBABA_CLOUD_OIDC_TOKEN_FILE" usage:"file with the token; in ACK /var/run/secrets/ack.alibabacloud.com/rrsa-tokens/token"`
	RoleSession     string        `flag:"alibabacloud-role-session-name" env:"ALIBABA_CLOUD_ROLE_SESSION_NAME" default:"outrigger" usage:"name of the session in the cloud's audit log"`

	// The names of Alibaba's own tools, which differ in an underscore.
	SDKAccessKeyID     config.Secret `env:"ALIBABA_CLOUD_ACCESS_KEY_ID" usage:"other spelling of ALIBABACLOUD_ACCESS_KEY_ID"`
	SDKAccessKeySecret config.Secret `env:"ALIBABA_CLOUD_ACCESS_KEY_SECRET" usage:"other spelling of ALIBABACLOUD_ACCESS_KEY_SECRET"`
	SDKSecurityToken   config.Secret `env:"ALIBABA_CLOUD_SECURITY_TOKEN" usage:"other spelling of ALIBABACLOUD_SECURITY_TOKEN"`

	Region         string   `flag:"region" env:"REGION" default:"cn-beijing" usage:"region of instances, image and vSwitches"`
	ImageID        string   `flag:"imageid" env:"IMAGEID" required:"true" usage:"pod VM image"`
	VSwitchIDs     []string `flag:"vswitch-id" env:"VSWITCH_ID" required:"true" usage:"vSwitch of the pod VMs; several, of other zones and the same VPC, are tried in this order when a zone has no capacity"`
	VPCID          string   `flag:"vpc-id" env:"ALIBABACLOUD_VPC_ID" usage:"VPC that the vSwitches must be in; default whichever they are in"`
	SecurityGroups []string `flag:"security-group-ids" env:"SECURITY_GROUP_IDS" required:"true" usage:"security groups of the pod VMs"`

	InstanceType        string                 `flag:"instance-type" env:"PODVM_INSTANCE_TYPE" default:"ecs.g8i.xlarge" usage:"type of a pod that asks for none"`
	EarlierInstanceType string                 `env:"INSTANCE_TYPE" usage:"earlier name of PODVM_INSTANCE_TYPE"`
	InstanceTypes       instancetypes.Patterns `flag:"instance-types" env:"PODVM_INSTANCE_TYPES" usage:"more types, or patterns such as ecs.g8i.*, to choose from by what a pod asks for"`
	Fallback            string                 `flag:"alibabacloud-fallback" env:"ALIBABACLOUD_FALLBACK" default:"price" choices:"price,zone,none" usage:"what to try next without capacity: price goes through the zones before it takes a dearer type, zone takes a dearer type before it leaves a zone"`
	Prices              bool                   `flag:"alibabacloud-prices" env:"ALIBABACLOUD_PRICES" default:"true" usage:"ask for prices where several types fit; else the smallest is taken"`

	KeyPair      string            `flag:"keyname" env:"KEYNAME" usage:"key pair for ssh"`
	DiskSize     int64             `flag:"system-disk-size" env:"SYSTEM_DISK_SIZE" default:"40" unit:"GiB" min:"20" max:"2048" usage:"size of the system disk; at least that of the image"`
	DiskCategory string            `flag:"alibabacloud-system-disk-category" env:"ALIBABACLOUD_SYSTEM_DISK_CATEGORY" default:"cloud_essd" choices:"cloud_essd,cloud_auto,cloud_essd_entry,cloud_ssd,cloud_efficiency" usage:"kind of system disk"`
	DiskKey      string            `flag:"alibabacloud-disk-kms-key-id" env:"ALIBABACLOUD_DISK_KMS_KEY_ID" usage:"id of the KMS key that encrypts the system disk; default not encrypted"`
	DisableCVM   bool              `flag:"disable-cvm" env:"DISABLECVM" default:"false" usage:"make ordinary VMs; else confidential ones (TDX)"`
	Tags         map[string]string `flag:"tags" env:"TAGS" usage:"more tags of everything that is made"`

	UsePublicIP bool   `flag:"use-public-ip" env:"USE_PUBLIC_IP" default:"false" usage:"give VMs a public address and reach them by it"`
	PublicIP    string `flag:"alibabacloud-public-ip" env:"ALIBABACLOUD_PUBLIC_IP" default:"bandwidth" choices:"bandwidth,eip" usage:"kind of public address: one of the instance's own, or an elastic one"`
	Bandwidth   int64  `flag:"alibabacloud-bandwidth" env:"ALIBABACLOUD_BANDWIDTH" default:"100" unit:"Mbit/s" min:"1" max:"100" usage:"most outgoing traffic of a public address, paid by traffic"`

	Spot       string `flag:"alibabacloud-spot" env:"ALIBABACLOUD_SPOT" default:"NoSpot" choices:"NoSpot,SpotAsPriceGo,SpotWithPriceLimit" usage:"bidding for spot instances, which the cloud may take back"`
	SpotLimit  string `flag:"alibabacloud-spot-price-limit" env:"ALIBABACLOUD_SPOT_PRICE_LIMIT" usage:"most to pay per hour with SpotWithPriceLimit"`
	HTTPTokens string `flag:"alibabacloud-http-tokens" env:"ALIBABACLOUD_HTTP_TOKENS" default:"required" choices:"required,optional" usage:"whether the metadata service answers only those who have asked for a token; optional is for older images"`

	PrivateEndpoints bool `flag:"alibabacloud-vpc-endpoints" env:"ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED" default:"false" usage:"reach the APIs, also that which gives out roles, by their addresses inside of VPCs, for nodes without a way to the internet"`

	ECSEndpoint string `flag:"alibabacloud-ecs-endpoint" env:"ALIBABACLOUD_ECS_ENDPOINT" usage:"host of the ECS API; default that of the region"`
	VPCEndpoint string `flag:"alibabacloud-vpc-endpoint" env:"ALIBABACLOUD_VPC_ENDPOINT" usage:"host of the VPC API; default that of the region"`
	STSEndpoint string `flag:"alibabacloud-sts-endpoint" env:"ALIBABACLOUD_STS_ENDPOINT" usage:"host of the STS API, which gives out roles; default that of the region"`
	SLBEndpoint string `flag:"alibabacloud-slb-endpoint" env:"ALIBABACLOUD_SLB_ENDPOINT" usage:"host of the API of load balancers (CLB); default that of the region"`
	CAFile      string `flag:"alibabacloud-ca-file" env:"ALIBABACLOUD_CA_FILE" usage:"certificates to trust in place of the system's"`
}

// Values of settings that have choices.
const (
	fallbackZone = "zone"
	fallbackNone = "none"
	publicEIP    = "eip"
	spotNone     = "NoSpot"
	spotLimited  = "SpotWithPriceLimit"
)

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).ForImport(forImport)
}

// forImport stands in for settings of instances, which imports do not use.
func forImport(c *Config) {
	c.ImageID, c.VSwitchIDs, c.SecurityGroups = "none", []string{"vsw-none"}, []string{"sg-none"}
}

// pace is how long things take; tests have less patience.
type pace struct {
	// poll is between two looks at something that is about to change; it
	// doubles up to maxPoll.
	poll, maxPoll time.Duration
	// visible is how long answers of the cloud may lag behind: what has not
	// appeared by then does not exist.
	visible time.Duration
	// undo is how long the removal of what a failed creation left may take.
	undo time.Duration
	// verify bounds ConfigVerifier.
	verify time.Duration
	// request bounds one HTTP request, retry is the first of its back-offs.
	request, retry time.Duration
}

func standardPace() pace {
	return pace{
		poll: 250 * time.Millisecond, maxPoll: 2 * time.Second, visible: 30 * time.Second,
		undo: 30 * time.Second, verify: time.Minute, request: 30 * time.Second, retry: 200 * time.Millisecond,
	}
}

// ticker paces looks at something that is about to change.
func (at pace) ticker() *poll.Ticker {
	return poll.Pace{First: at.poll, Max: at.maxPoll}.Ticker(20 * at.visible)
}

func logger() *slog.Logger { return slog.With("provider", Name) }
