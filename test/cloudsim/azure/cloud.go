// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// The subscription and what is in it from the beginning.
const (
	SubscriptionID  = "99999999-8888-7777-6666-555555555555"
	ResourceGroup   = "pods_group"
	Region          = "eastus"
	networkGroup    = "/subscriptions/" + SubscriptionID + "/resourceGroups/network_group/providers/Microsoft.Network/"
	SubnetID        = networkGroup + "virtualNetworks/cluster-net/subnets/pods"
	SecurityGroupID = networkGroup + "networkSecurityGroups/pods-nsg"
	// FarSecurityGroupID is in another region.
	FarSecurityGroupID = networkGroup + "networkSecurityGroups/far-nsg"
	imageGroup         = "/subscriptions/" + SubscriptionID + "/resourceGroups/images_group/providers/Microsoft.Compute/"
	ImageID            = imageGroup + "galleries/podvm/images/linux/versions/1.0.0"
	LatestImageID      = imageGroup + "galleries/podvm/images/linux"
	ManagedImageID     = imageGroup + "images/podvm-image"
	CommunityImageID   = "/CommunityGalleries/podvm-d0456493-bd0c-4429-9e18-5c1a2b5c0d6e/Images/linux/Versions/1.0.0"
	SharedImageID      = "/SharedGalleries/" + SubscriptionID + "-PODVM/Images/linux/Versions/1.0.0"
	// VolumeID is a data disk that nobody has attached.
	VolumeID = "/subscriptions/" + SubscriptionID + "/resourceGroups/data_group/providers/Microsoft.Compute/disks/data-1"
)

// Options are what differs from an Azure where all is well.
type Options struct {
	// Step is how long each step of making or removing something takes; 1 ms
	// by default.
	Step time.Duration
	// RetryAfter are the seconds that answers about operations ask to wait.
	RetryAfter int
	// TokenLife is how long tokens live; an hour by default.
	TokenLife time.Duration
	// SecretExpired is so for the application's secret.
	SecretExpired bool
	// PageSize is how many items a page of a list has; 4 by default.
	PageSize int
	// Cores are the quota of CPUs; 100,000 by default.
	Cores int64
	// Stuck is how far VMs come that are being made, and no further.
	Stuck Stage
}

// Stage is how far the making of a VM has come.
type Stage int

// Stages of VMs.
const (
	Accepted Stage = iota + 1
	Running        // and its guest has not reported
)

// Cloud is one simulated Azure.
type Cloud struct {
	World  *cloudsim.World
	Server *cloudsim.Server

	options  Options
	identity *identity
	schema   *schema

	mu     sync.Mutex
	closed bool
	vms    map[string]*machine    // by lower-case name, as everything
	nics   map[string]*networkNIC //
	ips    map[string]*address    //
	disks  map[string]*disk       //
	// snapshots are by lower-case resource id.
	snapshots map[string]*disk
	ops       map[string]*operation
	// gallery are galleries, their images and versions.
	gallery map[string]*artifact
	next    int // numbers addresses, operations and suffixes
	denied  []string
	wrong   []string
}

// New starts a cloud that ends with the test.
func New(t testing.TB, o Options) *Cloud {
	t.Helper()
	if o.Step == 0 {
		o.Step = time.Millisecond
	}
	if o.TokenLife == 0 {
		o.TokenLife = time.Hour
	}
	if o.PageSize == 0 {
		o.PageSize = 4
	}
	if o.Cores == 0 {
		o.Cores = 100_000
	}
	schema, err := computeSchema()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cloud{
		World: cloudsim.NewWorld(), options: o, identity: newIdentity(), schema: schema,
		vms: map[string]*machine{}, nics: map[string]*networkNIC{}, ips: map[string]*address{}, disks: map[string]*disk{}, snapshots: map[string]*disk{}, ops: map[string]*operation{},
		gallery: map[string]*artifact{},
	}
	c.disks[strings.ToLower(VolumeID)] = &disk{id: VolumeID}
	guarded, open := cloudsim.Guard(c.World.Handler(http.HandlerFunc(c.serve), action, refuse))
	c.Server = cloudsim.Serve(t, guarded)
	open()
	t.Cleanup(c.close)
	return c
}

func (c *Cloud) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Env are the settings of a provider with workload identity, as environment
// variables.
func (c *Cloud) Env(t testing.TB) []string {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(c.FederatedToken(t, Claims{})+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"AZURE_TENANT_ID=" + TenantID, "AZURE_CLIENT_ID=" + ClientID, "AZURE_FEDERATED_TOKEN_FILE=" + file,
		"AZURE_AUTHORITY_HOST=" + c.Server.URL, "AZURE_RESOURCE_MANAGER_ENDPOINT=" + c.Server.URL,
		"AZURE_SUBSCRIPTION_ID=" + SubscriptionID, "AZURE_RESOURCE_GROUP=" + ResourceGroup, "AZURE_REGION=" + Region,
		"AZURE_SUBNET_ID=" + SubnetID, "AZURE_NSG_ID=" + SecurityGroupID, "AZURE_IMAGE_ID=" + ImageID, "AZURE_INSTANCE_SIZES=*",
		"AZURE_CA_FILE=" + c.Server.CAFile,
	}
}

// Transport dials loopback only and trusts the server.
func (c *Cloud) Transport() *http.Transport {
	transport := c.Server.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = cloudsim.DialLoopback
	return transport
}

// Deny takes permissions from the application.
func (c *Cloud) Deny(actions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied = append(c.denied, actions...)
}

// Wrong returns what the cloud was asked and must never be: bodies that the
// models do not know, calls that do not exist.
func (c *Cloud) Wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wrong)
}

// Leaks is conformance.Subject.Leaks.
func (c *Cloud) Leaks() ([]string, error) {
	var left []string
	for _, r := range c.World.Own() {
		left = append(left, r.String())
	}
	return left, nil
}

// UserData returns the user-data of a VM, as its guest would read it.
func (c *Cloud) UserData(id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	vm := c.vms[strings.ToLower(id[strings.LastIndex(id, "/")+1:])]
	if vm == nil {
		return "", fmt.Errorf("no VM %s", id)
	}
	text, err := base64.StdEncoding.DecodeString(value(vm.model.Properties.UserData))
	return string(text), err
}

// failure is an error as the resource manager sends it.
type failure struct {
	status        int
	code, message string
}

func (f *failure) write(w http.ResponseWriter) {
	if f.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
		// Azure's own services send it, and it keeps tests short.
		w.Header().Set("X-Ms-Retry-After-Ms", "1")
	}
	reply(w, f.status, map[string]any{"error": map[string]any{"code": f.code, "message": f.message}})
}

func fail(status int, code, format string, args ...any) *failure {
	return &failure{status, code, fmt.Sprintf(format, args...)}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // the caller may have gone
}

// refuse returns a scripted fault.
func refuse(w http.ResponseWriter, r *http.Request, f cloudsim.Fault) {
	if strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token") {
		reply(w, f.Status, map[string]any{"error": f.Code, "error_description": f.Message})
		return
	}
	(&failure{f.Status, f.Code, f.Message}).write(w)
}

// violate notes what must never be asked. The caller holds mu.
func (c *Cloud) violate(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// after does something later, with mu held, unless the cloud has ended.
func (c *Cloud) after(steps int, do func()) {
	time.AfterFunc(time.Duration(steps)*c.options.Step, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			do()
		}
	})
}

// number returns a new number. The caller holds mu.
func (c *Cloud) number() int {
	c.next++
	return c.next
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Model returns a VM as it was asked for, or nil.
func (c *Cloud) Model(id string) *armcompute.VirtualMachine {
	c.mu.Lock()
	defer c.mu.Unlock()
	vm := c.vms[strings.ToLower(last(id))]
	if vm == nil {
		return nil
	}
	return &vm.model
}

// VolumeOwner returns the VM that has the data disk.
func (c *Cloud) VolumeOwner() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disks[strings.ToLower(VolumeID)].vm
}
