// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/outrigger/outrigger/provider"
)

// TestUnsupportedIsNotAlwaysCapacity: the cloud has one code for a type that a zone has
// not got, which another zone may have, and for settings that no zone takes. The second
// were tried everywhere and then told as a lack of capacity.
func TestUnsupportedIsNotAlwaysCapacity(t *testing.T) {
	for message, want := range map[string]error{
		"Your requested instance type (m6a.large) is not supported in your requested Availability Zone (us-east-1e).":                    provider.ErrCapacity,
		"The requested configuration is currently not supported. Please check the documentation for supported configurations.":           provider.ErrInvalidArgument,
		"The instance configuration for this AWS Marketplace product is not supported.":                                                  provider.ErrInvalidArgument,
		"Enhanced networking with the Elastic Network Adapter (ENA) is required for the 'm6a.large' instance type. Ensure that you are.": provider.ErrInvalidArgument,
	} {
		err := classify("run", &smithy.GenericAPIError{Code: "Unsupported", Message: message})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
