// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/provider"
)

// Reasons that conditions have besides those of an error's class.
const (
	ReasonEngineUnreachable = "DockerEngineUnreachable"
	ReasonImageMissing      = "ImageMissing"
	ReasonPortTaken         = "PortTaken"
	ReasonAddressTaken      = "AddressTaken"
	ReasonDiskFull          = "DiskFull"
	ReasonMountMissing      = "MountMissing"
	ReasonNameTaken         = "NameTaken"
	ReasonSubnetTaken       = "SubnetTaken"
	ReasonNoSubnet          = "NoSubnetLeft"
	ReasonBalancerFails     = "LoadBalancerRestarting"
	ReasonNetworkInUse      = "NetworkInUse"
	ReasonVolumeInUse       = "VolumeInUse"
	ReasonStartInterrupted  = "StartInterrupted"
	ReasonIPFamily          = "IPFamilyUnsupported"
	ReasonImageUnfit        = "ImageUnfit"
)

// Warns implements [reconciler.Warner]: these end when somebody does something.
func (*Backend) Warns(reason string) bool {
	switch reason {
	case ReasonEngineUnreachable, ReasonImageMissing, ReasonPortTaken, ReasonAddressTaken, ReasonDiskFull, ReasonMountMissing, ReasonNameTaken,
		ReasonSubnetTaken, ReasonNoSubnet, ReasonBalancerFails, ReasonNetworkInUse, ReasonBootstrapFailed, ReasonBootstrapTimeout, ReasonRestarting, ReasonTemplate, ReasonIPFamily, ReasonImageUnfit:
		return true
	}
	return false
}

type problem struct {
	reason string
	err    error
}

func (p *problem) Error() string  { return p.err.Error() }
func (p *problem) Unwrap() error  { return p.err }
func (p *problem) Reason() string { return p.reason }

// because makes an error of a class, with a reason.
func because(reason string, class error, format string, args ...any) error {
	return &problem{reason, fmt.Errorf("%w: %w", class, fmt.Errorf(format, args...))}
}

// noSubnet is what to do when the engine has no pool of addresses left.
const noSubnet = "the engine has given all its pools of addresses to networks: set spec.subnet of the cluster, remove networks that nobody needs (docker network prune), or give the engine more pools (default-address-pools in its daemon.json)"

// noIPv6 is what to do when the engine cannot make a network with IPv6.
const noIPv6 = "give its host's kernel IPv6 (no ipv6.disable=1 on its command line, and the module ipv6), or name IPv4 ranges in the Cluster's clusterNetwork"

// symptoms are messages of engines for errors without a code.
var symptoms = []struct {
	text, reason string
	class        error
	hint         string
}{
	{"permission denied while trying to connect", "", provider.ErrPermissionDenied, "let this program's user open the socket"},
	{"port is already allocated", ReasonPortTaken, provider.ErrUnavailable, "end what listens at that port of the engine's host"},
	{"address already in use", ReasonPortTaken, provider.ErrUnavailable, "end what listens at that port of the engine's host"},
	{"Address already in use", ReasonAddressTaken, provider.ErrUnavailable, "remove what has taken that address of the cluster's network"},
	{"no space left", ReasonDiskFull, provider.ErrCapacity, "free space where the engine has its data"},
	{"bind source path does not exist", ReasonMountMissing, provider.ErrInvalidArgument, "extraMounts names what the engine's host does not have"},
	{"Pool overlaps", ReasonSubnetTaken, provider.ErrUnavailable, "another network of the engine has that subnet"},
	{"non-overlapping IPv4 address pool", ReasonNoSubnet, provider.ErrUnavailable, noSubnet},
	{"predefined address pools have been fully subnetted", ReasonNoSubnet, provider.ErrUnavailable, noSubnet},
	{"has active endpoints", ReasonNetworkInUse, provider.ErrUnavailable, "containers that are not the cluster's are connected to it: disconnect them"},
	{"No such image", ReasonImageMissing, provider.ErrNotFound, "load or pull it"},
}

// startInterrupted are messages of an engine that died while it started a
// container: its runtime has state that the engine does not know about, and no
// later start of that container will succeed.
var startInterrupted = regexp.MustCompile(`task \S+ already exists|container with (given )?ID already exists|\.task/\S+: file exists`)

// networkGone is of a container in a network that was removed after the container was made.
var networkGone = regexp.MustCompile(`network [0-9a-f]{64} not found`)

func classify(err error) error {
	if err == nil || errors.As(err, new(*problem)) {
		return err
	}
	if startInterrupted.MatchString(err.Error()) {
		return because(ReasonStartInterrupted, provider.ErrUnavailable, "%w: the engine died while it started the container; another takes its place", err)
	}
	if networkGone.MatchString(err.Error()) {
		return because(ReasonStartInterrupted, provider.ErrUnavailable, "%w: two managers had made the cluster's network, and one of the two is removed; another container takes its place", err)
	}
	for _, s := range symptoms {
		if strings.Contains(err.Error(), s.text) {
			return &problem{s.reason, fmt.Errorf("%w: %w: %s", s.class, err, s.hint)}
		}
	}
	if client.IsErrConnectionFailed(err) {
		return &problem{ReasonEngineUnreachable, fmt.Errorf("%w: %w", provider.ErrUnavailable, err)}
	}
	if provider.Class(err) != provider.ErrUnknown {
		return err
	}
	return fmt.Errorf("%w: %w", dockerengine.Class(err), err)
}
