// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"fmt"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/xmlscan"
)

// content is what vCenter reports of one VM.
type content struct {
	ref        types.ManagedObjectReference
	properties properties
}

func (c content) machine() (*machine, error) { return machineOf(c.ref, c.properties) }

// contents is one reply about VMs, which is read without the library: its decoder checks and resolves each name.
type contents struct {
	list  []content
	token string // of the next page
	// complete says that a reply about VMs was read to its end.
	complete bool
}

// nothing is what the library gets in place of a reply, by its method.
const nothing = `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><%[1]s xmlns="urn:vim25"><returnval></returnval></%[1]s></Body></Envelope>`

// instead reads the replies of RetrievePropertiesEx and ContinueRetrievePropertiesEx. Those of other calls, such as a
// new login, are the library's.
func (c *contents) instead(reply []byte) ([]byte, error) {
	x, method := xmlscan.New(reply), ""
	err := x.Each(func(string) error { // Envelope, Body
		return x.Each(func(string) error {
			return x.Each(func(name string) error {
				if name != "RetrievePropertiesExResponse" && name != "ContinueRetrievePropertiesExResponse" {
					return nil
				}
				*c, method = contents{}, name
				return x.Each(func(string) error { return x.Each(func(name string) error { return c.read(x, name) }) })
			})
		})
	})
	switch {
	case method == "":
		return reply, nil
	case err != nil:
		return nil, fmt.Errorf("%w: read the reply: %w", provider.ErrUnavailable, err)
	}
	c.complete = true
	return fmt.Appendf(nil, nothing, method), nil
}

// read reads an element of a RetrieveResult (the API's reference: RetrieveResult, ObjectContent, DynamicProperty).
func (c *contents) read(x *xmlscan.Scanner, name string) (err error) {
	switch name {
	case "token":
		c.token, err = x.Text()
	case "objects":
		one := content{types.ManagedObjectReference{Type: "VirtualMachine"}, properties{}}
		err = x.Each(func(name string) (err error) {
			switch name {
			case "obj":
				one.ref.Value, err = x.Text()
			case "propSet":
				err = one.properties.read(x)
			}
			return err
		})
		c.list = append(c.list, one)
	}
	return err
}

// read reads one property, whose name comes before its value.
func (p properties) read(x *xmlscan.Scanner) error {
	path := ""
	return x.Each(func(name string) (err error) {
		switch name {
		case "name":
			path, err = x.Text()
		case "val":
			p[path], err = value(x, path)
		}
		return err
	})
}

// value reads the value of one of vmPaths.
func value(x *xmlscan.Scanner, path string) (any, error) {
	switch path {
	case recordPath, addressPath:
		option := types.OptionValue{}
		err := x.Each(func(name string) (err error) {
			if name == "value" {
				option.Value, err = x.Text()
			}
			return err
		})
		return option, err
	case "guest.net":
		var nics types.ArrayOfGuestNicInfo
		err := x.Each(func(string) error {
			var nic types.GuestNicInfo
			err := x.Each(func(name string) error {
				if name != "ipAddress" {
					return nil
				}
				text, err := x.Text()
				nic.IpAddress = append(nic.IpAddress, text)
				return err
			})
			nics.GuestNicInfo = append(nics.GuestNicInfo, nic)
			return err
		})
		return nics, err
	}
	text, err := x.Text()
	if path == "runtime.powerState" {
		return types.VirtualMachinePowerState(text), err
	}
	return text, err
}
