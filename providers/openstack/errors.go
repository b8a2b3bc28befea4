// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// classify gives an error of the cloud, the connection or the context its
// class. An error that has one keeps it.
func classify(err error) error { return failure.ClassifyBy(err, classOf) }

func classOf(err error) error {
	var response gophercloud.ErrUnexpectedResponseCode
	var noToken gophercloud.ErrUnableToReauthenticate
	var noEndpoint *gophercloud.ErrEndpointNotFound
	switch {
	case errors.As(err, &noToken):
		return loginClass(noToken.ErrReauth)
	case errors.As(err, &response):
		return statusClass(response)
	case errors.As(err, &noEndpoint):
		return provider.ErrInvalidArgument
	case failure.Untrusted(err): // trying again will not help
		return provider.ErrUnauthenticated
	case failure.NoReply(err):
		return provider.ErrUnavailable
	}
	return nil
}

// loginClass returns the class of an error of Keystone for a token request. The status
// of a refusal means little: a revoked application credential is a 404, which must not
// be taken for a missing instance.
func loginClass(err error) error {
	var response gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &response) && response.Actual < http.StatusInternalServerError &&
		response.Actual != http.StatusTooManyRequests && response.Actual != http.StatusRequestTimeout {
		return provider.ErrUnauthenticated
	}
	return classOf(err)
}

// statusClass knows the answers of Nova, Neutron, Glance and Keystone: a quota
// is a 403 in Nova and a 409 in Neutron.
func statusClass(response gophercloud.ErrUnexpectedResponseCode) error {
	body := string(response.Body)
	switch {
	case response.Actual == http.StatusForbidden && (strings.Contains(body, "uota exceeded") || strings.Contains(body, "OverLimit")),
		response.Actual == http.StatusConflict && strings.Contains(body, "OverQuota"):
		return provider.ErrQuota
	case response.Actual == http.StatusConflict && (strings.Contains(body, "IpAddressGenerationFailure") || strings.Contains(body, "No more IP addresses")):
		return provider.ErrCapacity
	}
	return failure.OfStatus(response.Actual, map[int]error{
		http.StatusRequestEntityTooLarge: provider.ErrQuota, http.StatusPreconditionFailed: provider.ErrUnavailable,
	})
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) { failure.Wrap(err, classify, format, args...) }

// status reports whether the cloud has answered with that status.
func status(err error, code int) bool { return gophercloud.ResponseCodeIs(err, code) }

// macTaken reports whether Neutron refused a port since its MAC address has one.
func macTaken(err error) bool { return conflict(err, "MacAddressInUse") }

// associated reports whether Neutron refused a floating IP since its port has one.
func associated(err error) bool { return conflict(err, "FloatingIPPortAlreadyAssociated") }

func conflict(err error, name string) bool {
	var response gophercloud.ErrUnexpectedResponseCode
	return errors.As(err, &response) && response.Actual == http.StatusConflict && strings.Contains(string(response.Body), name)
}

// markerLost reports whether a list broke off since what its last page ended with
// is gone. Neutron answers 404, as if one had asked for that thing.
func markerLost(err error) bool {
	var response gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &response) || !strings.Contains(response.URL, "marker=") {
		return false
	}
	return response.Actual == http.StatusNotFound || response.Actual == http.StatusBadRequest && strings.Contains(strings.ToLower(string(response.Body)), "marker")
}

// faultClass returns the class of the fault of a server that Nova could not make. The
// fault is only a sentence for humans.
func faultClass(message string) error {
	for _, row := range []struct {
		text  string
		class error
	}{
		{"No valid host", provider.ErrCapacity},
		{"No more IP addresses", provider.ErrCapacity},
		{"No fixed IP addresses available", provider.ErrCapacity},
		{"Exceeded maximum number of retries", provider.ErrCapacity}, // no host of several took it
		{"Insufficient compute resources", provider.ErrCapacity},
		{"uota", provider.ErrQuota},
		{"could not be found", provider.ErrInvalidArgument},
		{"is unacceptable", provider.ErrInvalidArgument},            // ImageUnacceptable
		{"disk is too small", provider.ErrInvalidArgument},          // FlavorDiskSmallerThanImage
		{"disk is smaller than", provider.ErrInvalidArgument},       // FlavorDiskSmallerThanMinDisk
		{"memory is too small", provider.ErrInvalidArgument},        // FlavorMemoryTooSmall
		{"is not active", provider.ErrInvalidArgument},              // ImageNotActive
		{"Binding failed for port", provider.ErrUnavailable},        // PortBindingFailed: an agent is down
		{"Failed to allocate the network", provider.ErrUnavailable}, // VirtualInterfaceCreateException and others
		{"Virtual Interface creation failed", provider.ErrUnavailable},
		{"did not finish being created", provider.ErrUnavailable}, // VolumeNotCreated: a slow or broken Cinder
		{"Block Device Mapping is Invalid", provider.ErrUnavailable},
		{"Build of instance", provider.ErrUnavailable}, // BuildAbortException without one of the causes above
	} {
		if strings.Contains(message, row.text) {
			return row.class
		}
	}
	return provider.ErrUnknown
}

// contains reports whether the cloud's answer has one of the texts.
func contains(err error, texts ...string) bool {
	var response gophercloud.ErrUnexpectedResponseCode
	return errors.As(err, &response) && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(string(response.Body), text) })
}
