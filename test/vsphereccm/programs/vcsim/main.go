// SPDX-License-Identifier: Apache-2.0

// Command vcsim is a vCenter without machines: govmomi's simulator, with one
// datacenter in region r1 and zone z1. It prints a line of JSON that says where
// it is, then obeys lines of its standard input, each answered by "ok" or an
// error, until that ends:
//
//	guest VM HOSTNAME ADDRESS   what VMware's tools report a VM
//	destroy VM                  as somebody does in the vCenter
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	_ "github.com/vmware/govmomi/vapi/simulator"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func main() {
	log.SetOutput(io.Discard) // the simulator's, of each call to what is not there
	address := flag.String("address", "127.0.0.1", "to listen at")
	user := flag.String("user", "ccm@vsphere.local", "who may log in")
	password := flag.String("password", "", "the user's")
	flag.Parse()
	if err := run(context.Background(), *address, url.UserPassword(*user, *password)); err != nil {
		fmt.Fprintln(os.Stderr, "vcsim:", err)
		os.Exit(1)
	}
}

// center is the simulator, and its administrator.
type center struct {
	model  *simulator.Model
	client *govmomi.Client
	finder *find.Finder
}

func run(ctx context.Context, address string, user *url.Userinfo) error {
	certificate, authority, err := certify(net.ParseIP(address))
	if err != nil {
		return err
	}
	model := simulator.VPX()
	defer model.Remove()
	if err := model.Create(); err != nil {
		return err
	}
	model.Service.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	model.Service.Listen = &url.URL{Host: net.JoinHostPort(address, "0"), User: user}
	model.Service.RegisterEndpoints = true
	server := model.Service.NewServer()
	defer server.Close()
	c := &center{model: model}
	if c.client, err = govmomi.NewClient(ctx, server.URL, true); err != nil {
		return err
	}
	c.finder = find.NewFinder(c.client.Client)
	dc, err := c.finder.DefaultDatacenter(ctx)
	if err != nil {
		return err
	}
	c.finder.SetDatacenter(dc)
	if err := c.tag(ctx, user, dc); err != nil {
		return err
	}
	if err := c.announce(ctx, server.URL, authority); err != nil {
		return err
	}
	return c.obey(ctx, os.Stdin)
}

// certify makes a certificate that is its own authority.
func certify(address net.IP) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "vcenter"}, SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 7),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{address},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority, err
}

// tag gives the datacenter its zone and region.
func (c *center) tag(ctx context.Context, user *url.Userinfo, dc *object.Datacenter) error {
	api := rest.NewClient(c.client.Client)
	if err := api.Login(ctx, user); err != nil {
		return fmt.Errorf("log in to the API of tags: %w", err)
	}
	m := tags.NewManager(api)
	for category, tag := range map[string]string{"k8s-region": "r1", "k8s-zone": "z1"} {
		if _, err := m.CreateCategory(ctx, &tags.Category{Name: category, Cardinality: "SINGLE", AssociableTypes: []string{"Datacenter"}}); err != nil {
			return fmt.Errorf("category %s: %w", category, err)
		}
		id, err := m.CreateTag(ctx, &tags.Tag{Name: tag, CategoryID: category})
		if err != nil {
			return fmt.Errorf("tag %s: %w", tag, err)
		}
		if err := m.AttachTag(ctx, id, dc.Reference()); err != nil {
			return fmt.Errorf("tag %s: %w", tag, err)
		}
	}
	return nil
}

// announce returns where the vCenter is and which VMs it has, by their UUIDs.
func (c *center) announce(ctx context.Context, at *url.URL, authority []byte) error {
	vms, err := c.finder.VirtualMachineList(ctx, "*")
	if err != nil {
		return err
	}
	uuids := map[string]string{}
	for _, vm := range vms {
		uuids[vm.Name()] = vm.UUID(ctx)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"address": at.Hostname(), "port": at.Port(), "authority": string(authority), "vms": uuids})
}

func (c *center) obey(ctx context.Context, orders io.Reader) error {
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		answer := "ok"
		if err := c.do(ctx, strings.Fields(lines.Text())); err != nil {
			answer = err.Error()
		}
		fmt.Println(answer)
	}
	return lines.Err()
}

func (c *center) do(ctx context.Context, words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("%q is not an order", words)
	}
	vm, err := c.finder.VirtualMachine(ctx, words[1])
	if err != nil {
		return err
	}
	switch {
	case words[0] == "guest" && len(words) == 4:
		return c.guest(ctx, vm.Reference(), words[2], words[3])
	case words[0] == "destroy" && len(words) == 2:
		return c.destroy(ctx, vm)
	}
	return fmt.Errorf("%q is not an order", words)
}

// guest is nothing that a client can do: the guest itself tells it.
func (c *center) guest(ctx context.Context, ref types.ManagedObjectReference, hostname, address string) error {
	in := &simulator.Context{Context: ctx, Map: c.model.Map()}
	vm, is := in.Map.Get(ref).(*simulator.VirtualMachine)
	if !is {
		return fmt.Errorf("%s is not a VM", ref)
	}
	in.Map.WithLock(in, vm, func() {
		in.Map.Update(in, vm, []types.PropertyChange{
			{Name: "guest.hostName", Val: hostname}, {Name: "guest.ipAddress", Val: address},
			{Name: "guest.net", Val: []types.GuestNicInfo{{Network: "VM Network", Connected: true, IpAddress: []string{address}}}},
		})
	})
	return nil
}

func (c *center) destroy(ctx context.Context, vm *object.VirtualMachine) error {
	var state mo.VirtualMachine
	if err := vm.Properties(ctx, vm.Reference(), []string{"runtime.powerState"}, &state); err != nil {
		return err
	}
	if state.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		task, err := vm.PowerOff(ctx)
		if err != nil {
			return err
		}
		if err := task.Wait(ctx); err != nil {
			return err
		}
	}
	task, err := vm.Destroy(ctx)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}
