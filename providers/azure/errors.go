// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
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

// statuses are the classes where the code is not known.
var statuses = map[int]error{
	http.StatusBadRequest:         provider.ErrInvalidArgument,
	http.StatusUnauthorized:       provider.ErrUnauthenticated,
	http.StatusForbidden:          provider.ErrPermissionDenied,
	http.StatusNotFound:           provider.ErrNotFound,
	http.StatusRequestTimeout:     provider.ErrUnavailable,
	http.StatusConflict:           provider.ErrUnavailable,
	http.StatusPreconditionFailed: provider.ErrAlreadyExists,
	http.StatusTooManyRequests:    provider.ErrUnavailable,
}

// answer is an error that Azure gave. It takes the place of the SDK's, whose
// text is the whole exchange.
type answer struct {
	status        int
	code, message string
}

func (a *answer) Error() string {
	text := a.code
	if a.status != 0 {
		text = fmt.Sprintf("%d %s", a.status, a.code)
	}
	if a.message != "" {
		text += ": " + a.message
	}
	return text
}

func (a *answer) class() error {
	// One code for two things: the quota of CPUs, and a VM in the wrong state.
	if a.code == "OperationNotAllowed" {
		if strings.Contains(strings.ToLower(a.message), "quota") {
			return provider.ErrQuota
		}
		return provider.ErrUnavailable
	}
	if class := codes[a.code]; class != nil {
		return class
	}
	if class := statuses[a.status]; class != nil {
		return class
	}
	if a.status >= http.StatusInternalServerError {
		return provider.ErrUnavailable
	}
	return provider.ErrUnknown
}

// classify gives an error of Azure, the credentials, the network or the
// context its class. An error that has one keeps it.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	var refused *azcore.ResponseError
	var credential *azidentity.AuthenticationFailedError
	var known *answer
	switch {
	case errors.As(err, &known):
		return fmt.Errorf("%w: %w", known.class(), err)
	case errors.As(err, &credential):
		text, class := credentialError(credential)
		return &classified{class, shorter(err, credential, text), nil}
	case errors.As(err, &refused):
		a := answered(refused)
		return &classified{a.class(), shorter(err, refused, a.Error()), a}
	case untrusted(err):
		return fmt.Errorf("%w: %w; trust its certificate authority with -azure-ca-file (AZURE_CA_FILE) or look at -azure-endpoint (AZURE_RESOURCE_MANAGER_ENDPOINT) and -azure-authority-host (AZURE_AUTHORITY_HOST)", provider.ErrUnavailable, err)
	}
	// What is left is the network or the context.
	return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
}

// classified is an error with its class whose text has the SDK's cut out.
type classified struct {
	class  error
	text   string
	answer *answer // nil where the resource manager was not asked
}

func (t *classified) Error() string { return t.class.Error() + ": " + t.text }

func (t *classified) Unwrap() []error {
	if t.answer == nil {
		return []error{t.class}
	}
	return []error{t.class, t.answer}
}

// shorter returns the text of err with other words for the error below it.
func shorter(err, below error, words string) string {
	return strings.Replace(err.Error(), below.Error(), words, 1)
}

func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &record)
}

// answered reads what Azure said.
func answered(refused *azcore.ResponseError) *answer {
	a := &answer{status: refused.StatusCode, code: refused.ErrorCode}
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Message string `json:"message"`
	}
	if refused.RawResponse != nil && json.Unmarshal(payload(refused.RawResponse), &body) == nil {
		a.message = body.Error.Message + body.Message
	}
	return a
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
	var known *answer
	switch {
	case errors.As(err, &refused):
		return refused.StatusCode, refused.ErrorCode
	case errors.As(err, &known):
		return known.status, known.code
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
