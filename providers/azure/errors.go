// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// codes are the classes of Azure's error codes. Sources: "Troubleshoot Azure
// deployment errors" and "Resource Manager request limits" (learn.microsoft.com).
var codes = map[string]error{
	"SkuNotAvailable":                       provider.ErrCapacity,
	"AllocationFailed":                      provider.ErrCapacity,
	"ZonalAllocationFailed":                 provider.ErrCapacity,
	"OverconstrainedAllocationRequest":      provider.ErrCapacity,
	"OverconstrainedZonalAllocationRequest": provider.ErrCapacity,
	"SubnetIsFull":                          provider.ErrCapacity,
	"QuotaExceeded":                         provider.ErrQuota,
	"PublicIPCountLimitReached":             provider.ErrQuota,
	"InvalidAuthenticationToken":            provider.ErrUnauthenticated,
	"InvalidAuthenticationTokenTenant":      provider.ErrUnauthenticated,
	"ExpiredAuthenticationToken":            provider.ErrUnauthenticated,
	"AuthenticationFailed":                  provider.ErrUnauthenticated,
	"AuthorizationFailed":                   provider.ErrPermissionDenied,
	"LinkedAuthorizationFailed":             provider.ErrPermissionDenied,
	"LinkedAccessCheckFailed":               provider.ErrPermissionDenied,
	"RequestDisallowedByPolicy":             provider.ErrPermissionDenied,
	"ReadOnlyDisabledSubscription":          provider.ErrPermissionDenied,
	"TooManyRequests":                       provider.ErrUnavailable,
	"SubscriptionRequestsThrottled":         provider.ErrUnavailable,
	"OperationPreempted":                    provider.ErrUnavailable,
	"AnotherOperationInProgress":            provider.ErrUnavailable,
	"Conflict":                              provider.ErrUnavailable,
	"RetryableError":                        provider.ErrUnavailable,
	"InternalExecutionError":                provider.ErrUnavailable,
	"OSProvisioningTimedOut":                provider.ErrUnavailable,
	"NicReservedForAnotherVm":               provider.ErrUnavailable,
	"NicInUse":                              provider.ErrUnavailable,
	"PublicIPAddressCannotBeDeleted":        provider.ErrUnavailable,
	"ImageNotFound":                         provider.ErrNotFound,
	"GalleryImageNotFound":                  provider.ErrNotFound,
	"SubscriptionNotFound":                  provider.ErrInvalidArgument, // not ErrNotFound: nobody has looked for the instance
	"InvalidSubscriptionId":                 provider.ErrInvalidArgument,
	"ResourceGroupNotFound":                 provider.ErrNotFound,
	"ResourceNotFound":                      provider.ErrNotFound,
	"NotFound":                              provider.ErrNotFound,
	"InvalidParameter":                      provider.ErrInvalidArgument,
	"LocationNotAvailableForResourceType":   provider.ErrInvalidArgument,
	"NoRegisteredProviderFound":             provider.ErrInvalidArgument,
	"MissingSubscriptionRegistration":       provider.ErrPermissionDenied,
	"InvalidResourceReference":              provider.ErrNotFound,
}

// answered returns the error that Azure gave. It takes the place of the SDK's, whose
// text is the whole exchange.
func answered(status int, code, message string) *failure.Error {
	class := codes[code]
	switch text := strings.ToLower(message); {
	case code == "OperationNotAllowed" && strings.Contains(text, "quota"):
		class = provider.ErrQuota // the same code for several things
	case code == "OperationNotAllowed" && strings.Contains(text, "maximum number of data disks"):
		class = provider.ErrCapacity
	case code == "ConflictingUserInput" && strings.Contains(text, "owned by"):
		class = provider.ErrInUse
	case code == "OperationNotAllowed":
		class = provider.ErrUnavailable // a VM in the wrong state
	case class == nil:
		class = failure.OfStatus(status, map[int]error{http.StatusPreconditionFailed: provider.ErrAlreadyExists})
	}
	return &failure.Error{Status: status, Code: code, Message: message, Class: class}
}

// classify gives an error of Azure, the credentials, the network or the
// context its class. An error that has one keeps it.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	var refused *azcore.ResponseError
	var credential *azidentity.AuthenticationFailedError
	switch {
	case errors.As(err, &credential):
		text, class := credentialError(credential)
		return fmt.Errorf("%w: %s", class, shorter(err, credential, text)) // the resource manager was not asked
	case errors.As(err, &refused):
		a := answerOf(refused)
		return &classified{shorter(err, refused, a.Error()), a}
	case untrusted(err):
		return fmt.Errorf("%w: %w; trust its certificate authority with -azure-ca-file (AZURE_CA_FILE) or look at -azure-endpoint (AZURE_RESOURCE_MANAGER_ENDPOINT) and -azure-authority-host (AZURE_AUTHORITY_HOST)", provider.ErrUnavailable, err)
	}
	// What is left is the network or the context.
	return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) { failure.Wrap(err, classify, format, args...) }

// classified is an answer whose text has the SDK's cut out.
type classified struct {
	text   string
	answer *failure.Error
}

func (t *classified) Error() string { return t.text }

func (t *classified) Unwrap() error { return t.answer }

// shorter returns the text of err with other words for the error below it.
func shorter(err, below error, words string) string {
	return strings.Replace(err.Error(), below.Error(), words, 1)
}

func untrusted(err error) bool {
	return failure.Untrusted(err) || errors.As(err, new(tls.RecordHeaderError))
}

// answerOf reads what Azure said.
func answerOf(refused *azcore.ResponseError) *failure.Error {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Message string `json:"message"`
	}
	if refused.RawResponse != nil {
		_ = json.Unmarshal(payload(refused.RawResponse), &body) // without words the code says it
	}
	return answered(refused.StatusCode, refused.ErrorCode, body.Error.Message+body.Message)
}

// payload reads a body that the SDK has read before, and leaves it to be read
// again.
func payload(r *http.Response) []byte {
	if r.Body == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return data
}

// credentialError explains why the authority gave no token.
func credentialError(failed *azidentity.AuthenticationFailedError) (text string, class error) {
	response := failed.RawResponse
	if response == nil {
		// There was no answer: a file that cannot be read, or the network.
		text := failed.Error()
		if strings.Contains(text, "-azure-federated-token-file") {
			return text, provider.ErrUnauthenticated
		}
		return "no token: " + text, provider.ErrUnavailable
	}
	var body struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	class = provider.ErrUnauthenticated
	if json.Unmarshal(payload(response), &body) != nil || response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
		class = provider.ErrUnavailable
	}
	first, _, _ := strings.Cut(body.Description, "\r\n")
	return fmt.Sprintf("the authority gives no token: %d %s: %s; look at -clientid (AZURE_CLIENT_ID), -tenantid (AZURE_TENANT_ID), -secret (AZURE_CLIENT_SECRET), the federated credential of the application, and this machine's clock",
		response.StatusCode, body.Error, first), class
}

// statusAndCode returns the status and code with which Azure refused, if it did.
func statusAndCode(err error) (status int, code string) {
	var refused *azcore.ResponseError
	var known *failure.Error
	switch {
	case errors.As(err, &refused):
		return refused.StatusCode, refused.ErrorCode
	case errors.As(err, &known):
		return known.Status, known.Code
	}
	return 0, ""
}

func codeOf(err error) string {
	_, code := statusAndCode(err)
	return code
}

// isStatus reports whether Azure answered with one of these.
func isStatus(err error, list ...int) bool {
	status, _ := statusAndCode(err)
	return status != 0 && slices.Contains(list, status)
}

// absent reports whether Azure answered that there is no such thing. Of a
// subscription that it does not know it has not looked for the thing.
func absent(err error) bool {
	code := codeOf(err)
	return isStatus(err, http.StatusNotFound) && code != "SubscriptionNotFound" && code != "InvalidSubscriptionId"
}

// refusedForGood reports whether Azure has refused a call and done nothing.
func refusedForGood(err error) bool {
	status, _ := statusAndCode(err)
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
}
