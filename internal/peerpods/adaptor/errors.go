// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
)

// Why a running CreateVM or StartVM was ended from this side.
var (
	errStopped  = errors.New("the sandbox was stopped meanwhile")
	errShutdown = errors.New("the adaptor is shutting down")
	errGone     = errors.New("the caller went away")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{provider.ErrInvalidArgument}, args...)...)
}

// StepError says which step failed and what the user can do.
type StepError struct {
	Step string
	Err  error
	// Console is the last lines of the VM's console; may be empty.
	Console string
}

func (e *StepError) Unwrap() error { return e.Err }

func (e *StepError) Error() string {
	text := fmt.Sprintf("step %s: %v", e.Step, e.Err)
	if hint := e.Hint(); hint != "" {
		text += "; " + hint
	}
	if e.Console != "" {
		text += "; the VM's console ends with:\n" + e.Console
	}
	return text
}

// Interrupted reports whether the step was ended on purpose, so that nothing
// went wrong.
func (e *StepError) Interrupted() bool {
	return errors.Is(e.Err, errStopped) || errors.Is(e.Err, errShutdown) || errors.Is(e.Err, errGone)
}

// Reason names what went wrong in one CamelCase word, where that is not the
// class of a provider's error; empty otherwise.
func (e *StepError) Reason() string {
	switch {
	case errors.Is(e.Err, unix.ENOSPC), errors.Is(e.Err, unix.EDQUOT):
		return "DiskFull"
	case errors.Is(e.Err, errEnded):
		return "InstanceEnded"
	case e.Step == stepCreateInstance, provider.Class(e.Err) != provider.ErrUnknown:
		return ""
	}
	return stepReasons[e.Step]
}

var stepReasons = map[string]string{
	stepInspectNetwork: "NetworkFailed",
	stepTunnel:         "NetworkFailed",
	stepConnect:        "AgentUnreachable",
	stepChooseZone:     "DiskNotFound",
	stepAttachDisks:    "DiskNotAttached",
}

// Hint returns what the user can do about the error; empty if the error says it.
func (e *StepError) Hint() string {
	switch class := provider.Class(e.Err); {
	case e.Interrupted():
		return ""
	case errors.Is(e.Err, unix.ENOSPC), errors.Is(e.Err, unix.EDQUOT):
		return "free space on the disk with the path in this message, else on that of -pods-dir"
	case errors.Is(e.Err, errEnded):
		return "its console tells why; check the image and the kernel command line"
	case class == provider.ErrUnauthenticated:
		return "check the provider's credentials"
	case class == provider.ErrPermissionDenied:
		return "give the provider's credentials the missing permission"
	case class == provider.ErrCapacity:
		return "choose another instance type or zone, or try later"
	case class == provider.ErrQuota:
		return "raise the account's quota or remove instances"
	case errors.Is(e.Err, fs.ErrPermission):
		return "run the adaptor as root with NET_ADMIN and SYS_ADMIN"
	}
	return stepHints[e.Step]
}

var stepHints = map[string]string{
	stepInspectNetwork: "look at the pod's network namespace and at -host-interface",
	stepTunnel:         "look at the pod's network namespace",
	stepChooseZone:     "look at the PersistentVolumes of the pod's volumes and at the disks that they name",
	stepAttachDisks:    "look at the volume's PersistentVolume and at what else has its disk",
	stepConnect:        "check -forwarder-port, -proxy-timeout and the firewall between node and VM",
}

var classCodes = map[error]codes.Code{
	provider.ErrInvalidArgument:  codes.InvalidArgument,
	provider.ErrNotFound:         codes.NotFound,
	provider.ErrAlreadyExists:    codes.AlreadyExists,
	provider.ErrInUse:            codes.FailedPrecondition,
	provider.ErrCapacity:         codes.ResourceExhausted,
	provider.ErrQuota:            codes.ResourceExhausted,
	provider.ErrUnauthenticated:  codes.Unauthenticated,
	provider.ErrPermissionDenied: codes.PermissionDenied,
	provider.ErrUnavailable:      codes.Unavailable,
	provider.ErrUnimplemented:    codes.Unimplemented,
}

// code returns the gRPC status code of an error.
func code(err error) codes.Code {
	if errors.Is(err, errStopped) || errors.Is(err, errShutdown) {
		return codes.Aborted
	}
	if c, ok := classCodes[provider.Class(err)]; ok {
		return c
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled), errors.Is(err, errGone):
		return codes.Canceled
	case errors.Is(err, errEnded):
		return codes.Unavailable
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return codes.ResourceExhausted
	}
	var carried interface{ GRPCStatus() *status.Status }
	if errors.As(err, &carried) {
		return carried.GRPCStatus().Code()
	}
	return codes.Unknown
}

// wire turns err into what goes to the caller, once, at the boundary.
func wire(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(code(err), err.Error())
}
