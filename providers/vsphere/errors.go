// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// classify gives an error of vCenter, the connection or the context its class.
// An error that has one keeps it.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	if f := faultOf(err); f != nil {
		err = fmt.Errorf("%w (%s)", err, describe(f))
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("%w: %w", class, err)
	}
	return err
}

func classOf(err error) error {
	if f := faultOf(err); f != nil {
		return faultClass(f)
	}
	var notFound *find.NotFoundError
	var multiple *find.MultipleFoundError
	var noDefault *find.DefaultNotFoundError
	var manyDefaults *find.DefaultMultipleFoundError
	switch {
	case errors.As(err, &notFound), errors.As(err, &noDefault):
		return provider.ErrNotFound
	case errors.As(err, &multiple), errors.As(err, &manyDefaults):
		return provider.ErrInvalidArgument
	case errors.As(err, new(*pinError)), failure.Untrusted(err): // trying again will not help
		return provider.ErrUnauthenticated
	case failure.NoReply(err):
		return provider.ErrUnavailable
	}
	return nil
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) { failure.Wrap(err, classify, format, args...) }

// faultOf returns what vCenter said, in a reply or as the end of a task.
func faultOf(err error) types.BaseMethodFault {
	var faulty interface {
		error
		Fault() types.BaseMethodFault
	}
	if errors.As(err, &faulty) {
		return faulty.Fault()
	}
	return nil
}

// is reports whether vCenter answered with a fault of type F.
func is[F types.BaseMethodFault](err error) bool {
	_, ok := faultOf(err).(F)
	return ok
}

// faultClass knows the faults of the vSphere Web Services API.
func faultClass(f types.BaseMethodFault) error {
	switch f.(type) {
	case types.BaseInsufficientResourcesFault, *types.NoDiskSpace, *types.NoCompatibleHost, *types.OutOfBounds:
		return provider.ErrCapacity
	case *types.NotEnoughLicenses, *types.LicenseAssignmentFailed, *types.LicenseExpired:
		return provider.ErrQuota
	case *types.InvalidLogin, *types.NotAuthenticated, *types.PasswordExpired:
		return provider.ErrUnauthenticated
	case *types.NoPermission, *types.RestrictedByAdministrator:
		return provider.ErrPermissionDenied
	case *types.ManagedObjectNotFound, *types.NotFound, *types.FileNotFound:
		return provider.ErrNotFound
	case *types.DuplicateName, *types.AlreadyExists:
		return provider.ErrAlreadyExists
	case *types.MethodNotFound:
		return provider.ErrUnimplemented
	case *types.InvalidArgument, *types.InvalidName, *types.InvalidRequest, *types.InvalidType, *types.InvalidVmConfig, *types.InvalidDeviceSpec,
		*types.InvalidDatastore, *types.TooManyDevices, *types.MemorySizeNotSupported, *types.NumVirtualCpusNotSupported, *types.NotSupported:
		return provider.ErrInvalidArgument
	case *types.TaskInProgress, *types.ResourceInUse, *types.ConcurrentAccess, *types.InvalidState, *types.InvalidPowerState, *types.RequestCanceled,
		*types.HostCommunication, *types.HostNotConnected, *types.HostNotReachable, *types.Timedout, *types.SystemError, *types.SystemErrorFault,
		*types.FileLocked, *types.CannotAccessVmComponent:
		return provider.ErrUnavailable
	}
	return nil
}

// isGone reports whether vCenter has not got that object any more.
func isGone(err error, object types.ManagedObjectReference) bool {
	f, ok := faultOf(err).(*types.ManagedObjectNotFound)
	return ok && f.Obj == object
}

// busy reports whether somebody else works on the object now.
func busy(err error) bool {
	return is[*types.TaskInProgress](err) || is[*types.ResourceInUse](err) || is[*types.ConcurrentAccess](err) || is[*types.FileLocked](err)
}

// describe adds what vCenter says about a fault where its message says nothing.
func describe(f types.BaseMethodFault) string {
	switch f := f.(type) {
	case *types.NoPermission:
		return "the user lacks privilege " + f.PrivilegeId
	case *types.InvalidArgument:
		return "invalid " + f.InvalidProperty
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", f), "*types.")
}
