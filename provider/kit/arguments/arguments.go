// SPDX-License-Identifier: Apache-2.0

// Package arguments refuses calls whose arguments no provider can take, before the
// provider sees them.
package arguments

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/intercept"
)

// Checked returns p behind the checks of this package: an empty or malformed key, an
// empty id to delete, a list that matches everything, a negative size, a disk without a
// size. Their error is [provider.ErrInvalidArgument]. Ask it for capabilities with [provider.As].
//
// Hosts open providers so (package plugin), and package conformance checks them so.
func Checked(p provider.Provider) provider.Provider {
	return intercept.Provider(p, func(_ context.Context, call intercept.Call, next func() error) error {
		if err := check(call); err != nil {
			return fmt.Errorf("%w: %s: %w", provider.ErrInvalidArgument, call.Method, err)
		}
		return next()
	})
}

// sandboxID is what the contract allows as a key of CreateInstance.
var sandboxID = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func check(call intercept.Call) error {
	switch call.Method {
	case "CreateInstance":
		return checkCreate(call.Key, call.Spec)
	case "DeleteInstance":
		if call.InstanceID == "" { // to some clouds no id means every id
			return errors.New("the instance id is empty")
		}
	case "ListInstances", "ListLoadBalancers", "ListDisks", "ListSnapshots":
		if len(call.Match) == 0 { // it would match what is not ours
			return errors.New("no tags to match")
		}
	case "Console":
		if call.TailBytes < 0 {
			return fmt.Errorf("%d bytes of the console", call.TailBytes)
		}
	default:
		return checkDisk(call)
	}
	return nil
}

// CheckKey returns why no provider takes a key, or nil.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errors.New("the sandbox id is empty")
	case !sandboxID.MatchString(key):
		return fmt.Errorf("the sandbox id %.80q is not 1 to 64 letters, digits, '-', '_' and '.'", key)
	}
	return nil
}

func checkCreate(key string, spec *provider.InstanceTypeSpec) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	switch {
	case spec.VCPUs < 0, spec.Memory < 0, spec.GPUs < 0:
		return fmt.Errorf("negative size: %d CPUs, %d MiB, %d GPUs", spec.VCPUs, spec.Memory, spec.GPUs)
	}
	return nil
}
