// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Region is where everything is.
const Region = "eu-test-1"

// Keys of the account. The session token is empty: they are for long.
const (
	KeyID  = "AKIAOUTRIGGERTEST001"
	Secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

// Options are how the cloud behaves. Zero values mean a cloud that does
// everything at once.
type Options struct {
	// Pending, Stopping and Ending are how long those states last.
	Pending, Stopping, Ending time.Duration
	// Keep is how long instances that have ended are shown: an hour by
	// default.
	Keep time.Duration
	// ListLag makes lists by tag lag behind as other reads do.
	ListLag bool
	// Page is the most that a page has, whatever the client asks for.
	Page int
	// Clock is what the cloud's clock is ahead.
	Clock time.Duration
	// Full are pairs of type and zone without capacity, such as
	// "m6a.large eu-test-1a"; "*" stands for all types.
	Full map[string]bool
	// VCPUs and Addresses are quotas; 0 is none.
	VCPUs, Addresses int
	// Storage is how long volumes and snapshots take for each of their states.
	Storage time.Duration
	// Volumes is the quota of volumes, Attachments how many an instance can have.
	Volumes, Attachments int
	// TakenDevices are names that EC2 refuses, such as those that the image has.
	TakenDevices map[string]bool
	// FailVolumes makes volumes end in the state error, and Optimizing has changes of them never complete.
	FailVolumes, Optimizing bool
	// FailSnapshots makes snapshots end in the state error.
	FailSnapshots bool
	// Denied are actions that the credentials lack, such as ec2:RunInstances.
	Denied map[string]bool
	// MaxFreeAddresses bounds the instances in each subnet; 0 means no bound.
	MaxFreeAddresses int
	// Issuer verifies the tokens of AssumeRoleWithWebIdentity.
	Issuer *Issuer
	// FailLaunch, a StateReason such as Server.InternalError, ends instances
	// after they were accepted.
	FailLaunch string
}

// Cloud is one account in one region.
type Cloud struct {
	World *cloudsim.World
	// Stock is what can be used.
	Stock *Stock

	ec2, sts, ebs, quotas *definition
	options               Options

	mu        sync.Mutex
	serial    int
	instances map[string]*instance
	order     []string
	tokens    map[string]use // by zone and token
	addresses map[string]*address
	volumes   map[string]*volume   // that are, or have become, no instance's own
	replies   map[string]obj       // to the calls that have made volumes
	snapshots map[string]*snapshot // by id
	sessions  map[string]session
	implied   map[string]bool
}

type session struct {
	secret, token string
	expires       time.Time
}

// New returns a cloud with the standard stock.
func New(t testing.TB, options Options) *Cloud {
	t.Helper()
	options.Keep = cmp.Or(options.Keep, time.Hour)
	return &Cloud{
		World: cloudsim.NewWorld(), Stock: standardStock(), options: options,
		ec2: load(t, "ec2/2016-11-15"), sts: load(t, "sts/2011-06-15"),
		ebs: load(t, "ebs/2019-11-02"), quotas: load(t, "service-quotas/2019-06-24"),
		volumes: map[string]*volume{}, replies: map[string]obj{}, snapshots: map[string]*snapshot{},
		instances: map[string]*instance{}, tokens: map[string]use{}, addresses: map[string]*address{},
		sessions: map[string]session{}, implied: map[string]bool{},
	}
}

// Change changes the options while the cloud runs.
func (c *Cloud) Change(f func(*Options)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.options)
}

// now is the cloud's time.
func (c *Cloud) now() time.Time { return time.Now().Add(c.options.Clock) }

// Handler serves EC2, STS, the EBS direct APIs and Service Quotas, which path,
// headers and action tell apart.
func (c *Cloud) Handler() http.Handler {
	scripted := c.World.Handler(http.HandlerFunc(c.serve), c.actionOf, func(w http.ResponseWriter, r *http.Request, f cloudsim.Fault) {
		(&failure{f.Code, f.Message, f.Status}).write(w, c.definitionOf(c.actionOf(r)))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.Header().Set("Date", c.now().UTC().Format(http.TimeFormat))
		scripted.ServeHTTP(w, r)
	})
}

// formOf returns a request's parameters and leaves the body as it was.
func formOf(r *http.Request) (url.Values, []byte) {
	body, _ := io.ReadAll(r.Body) // it is in memory
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return url.Values{}, body
	}
	return form, body
}

func (c *Cloud) actionOf(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/snapshots") {
		return "ebs:" + c.ebs.route(r)
	}
	if name, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), c.quotas.Metadata.TargetPrefix+"."); ok {
		return "servicequotas:" + name
	}
	form, _ := formOf(r)
	action := form.Get("Action")
	if form.Get("Version") == "2011-06-15" {
		return "sts:" + action
	}
	return "ec2:" + action
}

func (c *Cloud) definitionOf(action string) *definition {
	service, _, _ := strings.Cut(action, ":")
	switch service {
	case "sts":
		return c.sts
	case "ebs":
		return c.ebs
	case "servicequotas":
		return c.quotas
	}
	return c.ec2
}

// request is a call that was found to be right by form.
type request struct {
	params
	action string
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	form, body := formOf(r)
	service, name, _ := strings.Cut(c.actionOf(r), ":")
	d := c.definitionOf(service + ":")
	if d == c.ebs || d == c.quotas {
		c.serveJSON(w, r, body, d, service, name)
		return
	}
	answer, f := c.answer(r, form, body, service, name)
	if f != nil {
		f.write(w, d)
		return
	}
	d.reply(w, name, answer)
}

func (c *Cloud) answer(r *http.Request, form url.Values, body []byte, service, name string) (obj, *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method != http.MethodPost || r.URL.RawQuery != "" {
		return nil, fail("InvalidAction", "want POST with a form, not %s %s", r.Method, r.URL)
	}
	if name != "AssumeRoleWithWebIdentity" { // which nobody can sign
		if _, f := verify(r, body, service, Region, c.now(), c.secrets); f != nil {
			return nil, f
		}
	}
	d := c.definitionOf(service + ":")
	if f := d.check(name, form); f != nil {
		return nil, f
	}
	handler := handlers[service+":"+name]
	if handler == nil {
		return nil, fail("UnsupportedOperation", "the simulator has no %s:%s", service, name)
	}
	if f := c.allow(service+":"+name, params{form: form}); f != nil {
		return nil, f
	}
	return handler(c, request{params{form: form}, name})
}

// allow reports whether the credentials may do that. Tags at creation need a
// permission of their own (EC2 user guide, "Grant permission to tag Amazon EC2
// resources during creation").
func (c *Cloud) allow(action string, p params) *failure {
	needed := []string{action}
	if p.has("TagSpecification.1.ResourceType") {
		needed = append(needed, "ec2:CreateTags")
		c.implied["ec2:CreateTags"] = true
	}
	for _, permission := range needed {
		if c.options.Denied[permission] {
			return fail("UnauthorizedOperation", "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/test is not authorized to perform: %s", permission)
		}
	}
	if p.flag("DryRun") {
		return fail("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
	}
	return nil
}

// Implied are permissions that calls needed besides those of their names.
func (c *Cloud) Implied() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for permission := range c.implied {
		list = append(list, permission)
	}
	return list
}

func (c *Cloud) secrets(keyID string) (secret, token string, f *failure) {
	if keyID == KeyID {
		return Secret, "", nil
	}
	s, ok := c.sessions[keyID]
	switch {
	case !ok:
		return "", "", fail("AuthFailure", "AWS was not able to validate the provided access credentials")
	case c.now().After(s.expires):
		return "", "", fail("RequestExpired", "Request has expired.")
	}
	return s.secret, s.token, nil
}

// nextID returns an id as EC2's: a prefix and 17 hexadecimal digits.
func (c *Cloud) nextID(prefix string) string {
	c.serial++
	return fmt.Sprintf("%s-%017x", prefix, 0xabc0000000+c.serial)
}

// Issuer is an identity provider that the account trusts.
type Issuer struct {
	URL      string
	Audience string
	Subject  string
	Role     string
	Key      *ecdsa.PublicKey
}

type handler func(*Cloud, request) (obj, *failure)

var handlers = map[string]handler{
	"ec2:RunInstances":                   (*Cloud).runInstances,
	"ec2:DescribeInstances":              (*Cloud).describeInstances,
	"ec2:TerminateInstances":             (*Cloud).terminateInstances,
	"ec2:StopInstances":                  (*Cloud).stopInstances,
	"ec2:StartInstances":                 (*Cloud).startInstances,
	"ec2:GetConsoleOutput":               (*Cloud).getConsoleOutput,
	"ec2:AllocateAddress":                (*Cloud).allocateAddress,
	"ec2:AssociateAddress":               (*Cloud).associateAddress,
	"ec2:DisassociateAddress":            (*Cloud).disassociateAddress,
	"ec2:ReleaseAddress":                 (*Cloud).releaseAddress,
	"ec2:DescribeAddresses":              (*Cloud).describeAddresses,
	"ec2:DescribeImages":                 (*Cloud).describeImages,
	"ec2:DescribeInstanceTypes":          (*Cloud).describeInstanceTypes,
	"ec2:DescribeSubnets":                (*Cloud).describeSubnets,
	"ec2:DescribeSecurityGroups":         (*Cloud).describeSecurityGroups,
	"ec2:DescribeKeyPairs":               (*Cloud).describeKeyPairs,
	"ec2:DescribeLaunchTemplateVersions": (*Cloud).describeTemplates,
	"ec2:DescribeAccountAttributes":      (*Cloud).describeAccountAttributes,
	"ec2:DescribeVolumes":                (*Cloud).describeVolumes,
	"ec2:DeleteVolume":                   (*Cloud).deleteVolume,
	"ec2:CreateVolume":                   (*Cloud).createVolume,
	"ec2:CopyVolumes":                    (*Cloud).copyVolumes,
	"ec2:AttachVolume":                   (*Cloud).attachVolume,
	"ec2:DetachVolume":                   (*Cloud).detachVolume,
	"ec2:ModifyVolume":                   (*Cloud).modifyVolume,
	"ec2:DescribeVolumesModifications":   (*Cloud).describeModifications,
	"ec2:CreateSnapshot":                 (*Cloud).createSnapshot,
	"ec2:DescribeSnapshots":              (*Cloud).describeSnapshots,
	"ec2:DeleteSnapshot":                 (*Cloud).deleteSnapshot,
	"ec2:RegisterImage":                  (*Cloud).registerImage,
	"ec2:DeregisterImage":                (*Cloud).deregisterImage,
	"sts:AssumeRoleWithWebIdentity":      (*Cloud).assumeRole,
}
