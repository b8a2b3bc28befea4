// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/outrigger/outrigger/provider"
)

// classes are the classes of libvirt's error codes (virterror.h). What is not
// here is unknown, unless its text says more.
var classes = map[lv.ErrorNumber]error{
	lv.ErrNoMemory:             provider.ErrCapacity,
	lv.ErrNoSupport:            provider.ErrUnimplemented,
	lv.ErrUnknownHost:          provider.ErrInvalidArgument,
	lv.ErrNoConnect:            provider.ErrInvalidArgument, // no such driver in that daemon
	lv.ErrInvalidArg:           provider.ErrInvalidArgument,
	lv.ErrOsType:               provider.ErrInvalidArgument,
	lv.ErrXMLError:             provider.ErrInvalidArgument,
	lv.ErrXMLDetail:            provider.ErrInvalidArgument,
	lv.ErrXMLInvalidSchema:     provider.ErrInvalidArgument,
	lv.ErrDomExist:             provider.ErrAlreadyExists,
	lv.ErrOperationDenied:      provider.ErrPermissionDenied,
	lv.ErrRPC:                  provider.ErrUnavailable,
	lv.ErrNoDomain:             provider.ErrNotFound,
	lv.ErrNoNetwork:            provider.ErrNotFound,
	lv.ErrAuthFailed:           provider.ErrUnauthenticated,
	lv.ErrNoStoragePool:        provider.ErrNotFound,
	lv.ErrNoStorageVol:         provider.ErrNotFound,
	lv.ErrOperationInvalid:     provider.ErrUnavailable, // not in its present state
	lv.ErrConfigUnsupported:    provider.ErrInvalidArgument,
	lv.ErrOperationTimeout:     provider.ErrUnavailable,
	lv.ErrArgumentUnsupported:  provider.ErrInvalidArgument,
	lv.ErrOperationAborted:     provider.ErrUnavailable,
	lv.ErrAuthCancelled:        provider.ErrUnauthenticated,
	lv.ErrOperationUnsupported: provider.ErrUnimplemented,
	lv.ErrAgentUnresponsive:    provider.ErrUnavailable,
	lv.ErrResourceBusy:         provider.ErrUnavailable,
	lv.ErrAccessDenied:         provider.ErrPermissionDenied,
	lv.ErrStorageVolExist:      provider.ErrAlreadyExists,
	lv.ErrCPUIncompatible:      provider.ErrInvalidArgument,
	lv.ErrAuthUnavailable:      provider.ErrUnauthenticated,
	lv.ErrDeviceMissing:        provider.ErrInvalidArgument,
}

// phrases give a class to errors whose code says only "system error" or
// "internal error".
var phrases = []struct {
	text  string
	class error
}{
	{"No space left on device", provider.ErrCapacity},
	{"Disk quota exceeded", provider.ErrCapacity},
	{"annot allocate memory", provider.ErrCapacity},
	{"cannot set up guest memory", provider.ErrCapacity},
	{"Permission denied", provider.ErrPermissionDenied},
	{"No such file or directory", provider.ErrNotFound},
	{"asynchronous jobs running", provider.ErrUnavailable},
	{"duplicated for disk sources", provider.ErrUnavailable}, // another disk was attached by this name meanwhile
	{"Failed to get", provider.ErrInUse},                     // the lock of an image: block/file-posix.c of QEMU
}

// classify gives an error of the daemon, the connection or the context its
// class. An error that has one keeps it.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	var lvErr lv.Error
	switch {
	case errors.As(err, &lvErr):
		return fmt.Errorf("%w: %w", classOf(lvErr), err)
	case errors.Is(err, lv.ErrUnsupported):
		return fmt.Errorf("%w: %w", provider.ErrUnimplemented, err)
	case errors.Is(err, lv.ErrInterrupted), errors.Is(err, syscall.EINVAL), errors.Is(err, errBroken),
		errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return err
}

func classOf(lvErr lv.Error) error {
	for _, phrase := range phrases {
		if strings.Contains(lvErr.Message, phrase.text) {
			return phrase.class
		}
	}
	return cmp.Or(classes[lv.ErrorNumber(lvErr.Code)], provider.ErrUnknown)
}

// isCode reports whether the daemon answered with one of these codes.
func isCode(err error, codes ...lv.ErrorNumber) bool {
	var lvErr lv.Error
	return errors.As(err, &lvErr) && slices.Contains(codes, lv.ErrorNumber(lvErr.Code))
}

// unsupported reports whether the daemon's driver has not got what was asked.
func unsupported(err error) bool {
	return errors.Is(err, lv.ErrUnsupported) || isCode(err, lv.ErrNoSupport, lv.ErrOperationUnsupported, lv.ErrArgumentUnsupported, lv.ErrConfigUnsupported)
}
