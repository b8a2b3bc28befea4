// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// Names that no cloud knows.
const (
	noType  = "outrigger-no-such-type"
	noImage = "outrigger-no-such-image"
	noArch  = "outrigger-no-such-arch"
	noGPU   = "outrigger-no-such-gpu"
)

func (r *run) creationOfType(name string) creation {
	c := r.creation(newKey())
	c.spec.InstanceType = name
	return c
}

func (r *run) creationFrom(image string) creation {
	c := r.creation(newKey())
	c.spec.Image = image
	return c
}

func checkUnknownType(r *run) {
	r.checkRefused(r.creationOfType(noType), provider.ErrInvalidArgument, provider.ErrNotFound)
}

func checkUnknownImage(r *run) {
	r.checkRefused(r.creationFrom(noImage), provider.ErrInvalidArgument, provider.ErrNotFound)
}

func checkErrorNamesType(r *run)  { r.checkErrorNames(r.creationOfType(noType), noType) }
func checkErrorNamesImage(r *run) { r.checkErrorNames(r.creationFrom(noImage), noImage) }

func (r *run) checkErrorNames(c creation, name string) {
	r.Helper()
	if _, err := r.attempt(c); err != nil && !strings.Contains(err.Error(), name) {
		r.Errorf("the error does not name %s, which is wrong: %v", name, err)
	}
}

func checkUnknownArch(r *run) {
	c := r.creationOfType("")
	c.spec.Arch = noArch
	r.checkRefused(c, provider.ErrInvalidArgument, provider.ErrNotFound)
}

func checkUnknownZone(r *run) {
	c := r.creation(newKey())
	c.spec.Zone = noZone
	if err := r.checkRefused(c, provider.ErrInvalidArgument); err != nil && !strings.Contains(err.Error(), noZone) {
		r.Errorf("the error does not name %s, which is wrong: %v", noZone, err)
	}
}

// checkZone asks for the zone in which the provider makes instances by itself.
func checkZone(r *run) {
	made := r.mustCreate(newKey())
	zone := made.Zone
	if has[provider.Getter](r) {
		r.checkFound(made.ID)
		if got, err := r.get(made.ID); err == nil && got != nil {
			zone = got.Zone
		}
	}
	if zone == "" {
		r.Skipf("not checked: instances of this provider are in no zone")
	}
	c := r.creation(newKey())
	c.spec.Zone = zone
	if made = r.mustDo(c); made.Zone != zone {
		r.Errorf("CreateInstance for zone %q returned an instance in zone %q", zone, made.Zone)
	}
}

func checkUnknownGPU(r *run) {
	c := r.creationOfType("")
	c.spec.GPUs, c.spec.GPU = 1000, noGPU
	r.checkRefused(c, impossible...)
}

// impossible are the classes of errors for a size that the cloud does not have: it may
// know that it never will, or only that it has none now.
var impossible = []error{provider.ErrInvalidArgument, provider.ErrNotFound, provider.ErrCapacity, provider.ErrQuota}

// sized returns a creation by size. The memory is enough for a guest to boot.
func (r *run) sized(cpus, memory, gpus int64) creation {
	c := r.creationOfType("")
	c.spec.VCPUs, c.spec.Memory, c.spec.GPUs = cpus, memory, gpus
	return c
}

func checkCPUsOnly(r *run)   { r.mustDo(r.sized(1, 0, 0)) }
func checkMemoryOnly(r *run) { r.mustDo(r.sized(0, 512, 0)) }

// checkSizeHuge asks for numbers that overflow where they are made bytes or
// 32 bits.
func checkSizeHuge(r *run) {
	r.checkRefused(r.sized(math.MaxInt64, 0, 0), impossible...)
	r.checkRefused(r.sized(0, math.MaxInt64, 0), impossible...)
	r.checkRefused(r.sized(1<<32+1, 1<<40, 0), impossible...)
}

func checkSizeNegative(r *run) {
	r.checkRefused(r.sized(-1, 0, 0), provider.ErrInvalidArgument)
	r.checkRefused(r.sized(0, -1, 0), provider.ErrInvalidArgument)
	r.checkRefused(r.sized(0, 0, -1), provider.ErrInvalidArgument)
}

// checkRefused makes a creation that must fail with one of the classes, and
// returns the error.
func (r *run) checkRefused(c creation, classes ...error) error {
	r.Helper()
	_, err := r.attempt(c)
	r.checkClass("CreateInstance", err, classes...)
	return err
}

// checkClass wants an error of one of the classes.
func (r *run) checkClass(what string, err error, allowed ...error) {
	r.Helper()
	switch {
	case err == nil:
		r.Errorf("%s returned no error, want one of class %q", what, allowed)
	case !slices.ContainsFunc(allowed, func(class error) bool { return errors.Is(err, class) }):
		r.Errorf("%s: error %q has class %q, not %q", what, err, provider.Class(err), allowed)
	}
}
