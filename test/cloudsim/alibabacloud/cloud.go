// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Options are what a simulated cloud begins with. The zero value is an account
// with one access key and quick machines.
type Options struct {
	// Lag is how long an instance takes from one status to the next, and an
	// address from being asked for to be associated; 2 ms by default. Below a
	// microsecond everything is done at once.
	Lag time.Duration
	// Clock is how far the cloud's clock is ahead of this machine's.
	Clock time.Duration
	// Session is how long the keys of a role last; an hour by default.
	Session time.Duration
	// RemembersFailures makes the client token of a call that was refused
	// unusable for others, as some clouds do.
	RemembersFailures bool
	// HeldByAddress lets an instance that is being deleted live until nobody's
	// address is associated with it; otherwise its end lets them go, and whether
	// somebody has to is a matter of time.
	HeldByAddress bool
	// MaxInstances, MaxAddresses and MaxBalancers are the account's quota; none by
	// default.
	MaxInstances, MaxAddresses, MaxBalancers int
}

// What every simulated cloud has.
const (
	Region       = "cn-beijing"
	VPC          = "vpc-2zesimulated"
	VSwitch      = "vsw-2zesimulated-i"
	OtherVSwitch = "vsw-2zesimulated-k" // in another zone
	StrayVSwitch = "vsw-2zesimulated-x" // in another VPC
	Group        = "sg-2zesimulated"
	StrayGroup   = "sg-2zesimulated-x" // of another VPC
	Image        = "m-2ze1w9aj2aonwckv64cw"
	KeyPair      = "outrigger"
	AccessKeyID  = "LTAI5tSimulated"
	AccessSecret = "the secret of LTAI5tSimulated"
	Role         = "acs:ram::1234567890123456:role/caa-alibaba"
	OIDCProvider = "acs:ram::1234567890123456:oidc-provider/ack-rrsa-csimulated"
	Issuer       = "https://oidc-ack-cn-beijing.oss.example/csimulated"
	Audience     = "sts.aliyuncs.com"
	Subject      = "system:serviceaccount:confidential-containers-system:cloud-api-adaptor"
	OtherSubject = "system:serviceaccount:confidential-containers-system:peerpod-ctrl"
	zone         = "cn-beijing-i"
	otherZone    = "cn-beijing-k"
	strayVPC     = "vpc-2zesomebodyelse"
)

// Cloud is a simulated cloud.
type Cloud struct {
	*cloudsim.World
	// Endpoint is the host and port of all APIs.
	Endpoint string
	// CAFile holds the certificate to trust.
	CAFile string

	options Options
	server  *cloudsim.Server

	mu        sync.Mutex
	accounts  map[string]*account // by access key id
	denied    map[string]bool     // actions that the account may not call
	nonces    map[string]bool
	tokens    map[string]*remembered // by action and client token
	instances map[string]*instance
	nics      map[string]*nic
	disks     map[string]bool     // of instances
	storage   map[string]*storage // data disks, and snapshots
	addresses map[string]*address
	images    map[string]*image
	balancers map[string]*balancer
	soldOut   map[string]bool // types, or types at zones
	nextIP    int
	// requests are those of RunInstances that were carried out, for tests.
	requests []url.Values
}

// account is an access key.
type account struct {
	secret, token string
	expire        time.Time
}

// remembered is the answer to a call with a client token.
type remembered struct {
	parameters string
	answer     map[string]any
	err        error
}

// New starts a cloud, which ends with the test.
func New(t testing.TB, o Options) *Cloud {
	t.Helper()
	if o.Lag == 0 {
		o.Lag = 2 * time.Millisecond
	}
	if o.Session == 0 {
		o.Session = time.Hour
	}
	defined.load(t)
	c := &Cloud{
		World: cloudsim.NewWorld(), options: o, accounts: map[string]*account{AccessKeyID: {secret: AccessSecret}},
		denied: map[string]bool{}, nonces: map[string]bool{}, tokens: map[string]*remembered{}, instances: map[string]*instance{},
		nics: map[string]*nic{}, disks: map[string]bool{}, storage: map[string]*storage{}, addresses: map[string]*address{}, soldOut: map[string]bool{},
		balancers: map[string]*balancer{}, images: map[string]*image{Image: {"podvm", "QCOW2", importSteps}},
	}
	c.server = cloudsim.Serve(t, c.World.Handler(http.HandlerFunc(c.serve), actionOf, func(out http.ResponseWriter, _ *http.Request, f cloudsim.Fault) {
		answerError(out, newID(""), f.Code, f.Message, f.Status)
	}))
	c.Endpoint, c.CAFile = c.server.Listener.Addr().String(), c.server.CAFile
	return c
}

func (c *Cloud) now() time.Time { return time.Now().Add(c.options.Clock).UTC() }

// Deny takes rights away from the account, such as ecs:RunInstances.
func (c *Cloud) Deny(actions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, action := range actions {
		c.denied[action] = true
	}
}

// SellOut leaves nothing of a type, or of a type in a zone as type@zone.
func (c *Cloud) SellOut(kinds ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range kinds {
		c.soldOut[kind] = true
	}
}

// Requests returns the parameters of the instances that were made.
func (c *Cloud) Requests() []url.Values {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]url.Values(nil), c.requests...)
}

const stsVersion = "2015-04-01"

// actionOf names the action of a request as RAM does.
func actionOf(r *http.Request) string {
	if version := r.Header.Get("X-Acs-Version"); version != "" {
		return products[version].name + ":" + r.Header.Get("X-Acs-Action")
	}
	query := r.URL.Query()
	if product, ok := products[query.Get("Version")]; ok {
		return product.name + ":" + query.Get("Action")
	}
	return "sts:" + query.Get("Action")
}

// serve goes through a request as the package's documentation says.
func (c *Cloud) serve(out http.ResponseWriter, r *http.Request) {
	id := newID("")
	answer, err := c.handle(r)
	var refused *refusal
	status := http.StatusOK
	switch {
	case errors.As(err, &refused):
		status, answer = statuses[refused.code].status, errorBody(refused.code, refused.message)
	case err != nil:
		status, answer = http.StatusInternalServerError, errorBody("InternalError", err.Error())
	}
	answer["RequestId"] = id
	if isRPC(r) && r.URL.Query().Get("Format") != "JSON" {
		root := r.URL.Query().Get("Action") + "Response"
		if err != nil {
			root = "Error"
		}
		answerXML(out, status, root, answer)
		return
	}
	answerJSON(out, status, answer)
}

func (c *Cloud) handle(r *http.Request) (map[string]any, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.mu.Lock()
	defer c.mu.Unlock()
	if isRPC(r) {
		return c.handleRPC(r)
	}
	if r.Method != http.MethodPost || r.URL.Path != "/" {
		return nil, refuse("UnsupportedHTTPMethod", "%s %s", r.Method, r.URL.Path)
	}
	version := r.Header.Get("X-Acs-Version")
	if version == "" {
		return c.assumeRole(r)
	}
	if _, err := c.authenticate(r, body); err != nil {
		return nil, err
	}
	return c.allowed(version, r.Header.Get("X-Acs-Action"), actionOf(r), r.URL.Query())
}

func (c *Cloud) allowed(version, action, name string, query url.Values) (map[string]any, error) {
	if c.denied[name] {
		return nil, refuse("Forbidden.RAM", "User not authorized to operate on the specified resource, or this API doesn't support RAM.")
	}
	return c.act(version, action, name, query)
}

func (c *Cloud) act(version, action, name string, query url.Values) (map[string]any, error) {
	structures, err := defined.action(version, action)
	switch {
	case err != nil:
		return nil, err
	case structures == nil:
		return nil, refuse("InvalidAction.NotFound", "There is no action %s in version %q.", action, version)
	}
	if err := check(structures, action, query); err != nil {
		return nil, err
	}
	do, ok := c.actions()[name]
	if !ok {
		return nil, refuse("NotSimulated", "%s is not simulated.", name)
	}
	p := &parameters{values: query, used: map[string]bool{}}
	if region := p.text("RegionId"); region != "" && region != Region {
		return nil, refuse("InvalidRegionId.NotFound", "There is no region %s.", region)
	}
	answer, err := do(p)
	if unknown := p.unused(); err == nil && len(unknown) > 0 {
		return nil, refuse("NotSimulated", "%s: parameters %s are not simulated.", name, strings.Join(unknown, ", "))
	}
	return answer, err
}

func (c *Cloud) actions() map[string]func(*parameters) (map[string]any, error) {
	return map[string]func(*parameters) (map[string]any, error){
		"ecs:RunInstances":              c.runInstances,
		"ecs:DeleteInstance":            c.deleteInstance,
		"ecs:StopInstance":              c.stopInstance,
		"ecs:StartInstance":             c.startInstance,
		"ecs:DescribeInstances":         c.describeInstances,
		"ecs:GetInstanceConsoleOutput":  c.consoleOutput,
		"ecs:TagResources":              c.tagResources,
		"ecs:DescribeInstanceTypes":     c.describeInstanceTypes,
		"ecs:DescribeAvailableResource": c.describeAvailableResource,
		"ecs:DescribePrice":             c.describePrice,
		"ecs:DescribeImages":            c.describeImages,
		"ecs:ImportImage":               c.importImage,
		"ecs:DeleteImage":               c.deleteImage,
		"ecs:DescribeSecurityGroups":    c.describeSecurityGroups,
		"ecs:DescribeKeyPairs":          c.describeKeyPairs,
		"ecs:CreateDisk":                c.createDisk,
		"ecs:DescribeDisks":             c.describeDisks,
		"ecs:DeleteDisk":                c.deleteDisk,
		"ecs:AttachDisk":                c.attachDisk,
		"ecs:DetachDisk":                c.detachDisk,
		"ecs:ResizeDisk":                c.resizeDisk,
		"ecs:CreateSnapshot":            c.createSnapshot,
		"ecs:DescribeSnapshots":         c.describeSnapshots,
		"ecs:DeleteSnapshot":            c.deleteSnapshot,
		"vpc:DescribeVSwitchAttributes": c.describeVSwitch,
		"vpc:AllocateEipAddress":        c.allocateAddress,
		"vpc:AssociateEipAddress":       c.associateAddress,
		"vpc:UnassociateEipAddress":     c.unassociateAddress,
		"vpc:ReleaseEipAddress":         c.releaseAddress,
		"vpc:DescribeEipAddresses":      c.describeAddresses,

		"slb:CreateLoadBalancer":             c.createBalancer,
		"slb:DeleteLoadBalancer":             c.deleteBalancer,
		"slb:DescribeLoadBalancers":          c.describeBalancers,
		"slb:DescribeLoadBalancerAttribute":  c.describeBalancer,
		"slb:ModifyLoadBalancerInstanceSpec": c.modifyBalancerSpec,
		"slb:ModifyLoadBalancerInternetSpec": c.modifyBalancerInternet,
		"slb:CreateLoadBalancerTCPListener":  c.createListener("tcp"),
		"slb:CreateLoadBalancerUDPListener":  c.createListener("udp"),
		"slb:StartLoadBalancerListener":      c.startListener,
		"slb:DeleteLoadBalancerListener":     c.deleteListener,
		"slb:DescribeLoadBalancerListeners":  c.describeListeners,
		"slb:AddBackendServers":              c.addServers,
		"slb:RemoveBackendServers":           c.removeServers,
	}
}

// once carries out a call with a client token, or returns what it answered to
// an earlier one with the same.
func (c *Cloud) once(action string, p *parameters, do func() (map[string]any, error)) (map[string]any, error) {
	token := p.text("ClientToken")
	if token == "" {
		return do()
	}
	if len(token) > 64 || strings.ContainsFunc(token, func(r rune) bool { return r > 126 || r < 33 }) {
		return nil, refuse("InvalidClientToken.ValueNotSupported", "The client token has more than 64 characters, or others than ASCII.")
	}
	key := action + " " + token
	parameters := p.values.Encode()
	if known := c.tokens[key]; known != nil {
		if known.parameters != parameters {
			return nil, refuse("IdempotentParameterMismatch", "The client token was used with other parameters.")
		}
		p.useAll()
		return copyOf(known.answer), known.err
	}
	answer, err := do()
	if err == nil || c.options.RemembersFailures {
		c.tokens[key] = &remembered{parameters, copyOf(answer), err}
	}
	return answer, err
}

func copyOf(answer map[string]any) map[string]any {
	other := map[string]any{}
	for key, value := range answer {
		other[key] = value
	}
	return other
}

// newID returns an id of the cloud's.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()[:18]) }

func (c *Cloud) address(network string) string {
	c.nextIP++
	return fmt.Sprintf("%s.%d.%d", network, c.nextIP/250, 2+c.nextIP%250)
}

// Env returns the variables with which the provider, as a program of its own,
// makes instances here: those of the guide, with a role.
func (c *Cloud) Env(t testing.TB) []string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(Token(ServiceAccount())), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"ALIBABA_CLOUD_ROLE_ARN=" + Role, "ALIBABA_CLOUD_OIDC_PROVIDER_ARN=" + OIDCProvider, "ALIBABA_CLOUD_OIDC_TOKEN_FILE=" + token,
		"REGION=" + Region, "VSWITCH_ID=" + VSwitch, "SECURITY_GROUP_IDS=" + Group, "IMAGEID=" + Image,
		"ALIBABACLOUD_ECS_ENDPOINT=" + c.Endpoint, "ALIBABACLOUD_VPC_ENDPOINT=" + c.Endpoint, "ALIBABACLOUD_STS_ENDPOINT=" + c.Endpoint,
		"ALIBABACLOUD_SLB_ENDPOINT=" + c.Endpoint,
		"ALIBABACLOUD_CA_FILE=" + c.CAFile, "NO_PROXY=*",
	}
}

// ForgetTokens lets all client tokens be as if they had never been used.
func (c *Cloud) ForgetTokens() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tokens)
}
