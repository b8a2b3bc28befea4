// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/alibabacloud-go/tea/dara"
	"github.com/alibabacloud-go/tea/tea"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// rule gives codes that match a pattern a class. The first that matches counts.
type rule struct {
	pattern *regexp.Regexp
	class   error
	hint    string
}

func codes(pattern string, class error, hint string) rule {
	return rule{regexp.MustCompile("^(?:" + pattern + ")$"), class, hint}
}

// rules are from the error tables of the API's pages (RunInstances,
// DeleteInstance, AllocateEipAddress, common errors of ECS and VPC).
var rules = []rule{
	// AttachDisk, CreateDisk and CreateSnapshot.
	codes(`InstanceDiskLimitExceeded`, provider.ErrCapacity, ""),
	codes(`InvalidDisk\.InUse|InvalidDevice\.InUse|DiskAttachedNumberExceeded`, provider.ErrInUse, ""),
	codes(`ResourcesNotInSameZone|DiskId\..*|DiskCategory\..*|DiskNotPortable`, provider.ErrInvalidArgument, ""),
	codes(`IncorrectDiskStatus\.Never.*`, provider.ErrInvalidArgument, "the cloud takes snapshots only of disks that have been attached once"),
	codes(`Throttling(\..*)?|IncorrectDiskStatus(\..*)?|DiskError|IncorrectVolumeStatus|IdempotentProcessing|.*\.NotReady|ServiceUnavailable(\..*)?|InternalError|.*\.InternalError|Idempotence\.Processing|LastTokenProcessing|IncorrectInstanceStatus(\..*)?|IncorrectEipStatus|TaskConflict|OperationConflict|.*InvalidOperation\.Conflict|IncorrectStatus(\..*)?|OperationDenied\.ResourceControl|BackendServer\.configuring|ServiceIsConfiguring|ServiceIsStopping|SystemBusy|OperationBusy|OperationUnable.*`,
		provider.ErrUnavailable, ""),
	codes(`OperationDenied\.NoStock|.*\.NoStock|ResourceNotAvailable|OperationDenied\.ZoneSystemCategoryNotMatch|InvalidInstanceType\.ZoneNotSupported|InstanceType\.Offline|InvalidResourceType\.NotSupported|Zone\.NotOnSale|Zone\.NotOpen|InvalidVSwitchId\.IpNotEnough|OperationDenied\.InsufficientStock`,
		provider.ErrCapacity, ""),
	codes(`Quota.*|.*QuotaExceed.*|.*\.QuotaExceeded|.*LimitExceed.*|InstanceQuotaExceed`,
		provider.ErrQuota, "ask for more in the quota centre"),
	codes(`InsufficientBalance|Account\.Arrearage|Arrearage|.*\.Arrearage`, provider.ErrQuota, "the account has no money left"),
	codes(`InvalidTimeStamp\..*|IllegalTimestamp`, provider.ErrUnauthenticated, "the clock of this machine is wrong"),
	codes(`InvalidSecurityToken.*|SecurityToken.*`, provider.ErrUnauthenticated, "the STS token is wrong or has expired"),
	codes(`InvalidAccessKeyId.*|InvalidAccessKeySecret|SignatureDoesNotMatch|IncompleteSignature|SignatureNonceUsed|MissingAccessKeyId|.*AccessKeyDisabled|UnsupportedSignature.*`,
		provider.ErrUnauthenticated, "look at ALIBABACLOUD_ACCESS_KEY_ID and ALIBABACLOUD_ACCESS_KEY_SECRET"),
	codes(`OperationDenied\.DeleteProtectionIsOn`, provider.ErrPermissionDenied, "somebody has protected it from deletion: take that off in the console"),
	codes(`Forbidden(\..*)?|NoPermission|.*\.Unauthorized|UnauthorizedOperation|InvalidOperation\.DeletionProtection`, provider.ErrPermissionDenied, ""),
	codes(`InvalidRegionId.*|UnknownRegion`, provider.ErrInvalidArgument, "look at REGION"),
	codes(`ObtainIpFail|.*NotFound(\..*)?|.*NotExist(s)?`, provider.ErrNotFound, ""),
	codes(`.*AlreadyExist(s)?|.*\.Duplicated`, provider.ErrAlreadyExists, ""),
	codes(`Invalid.*|Missing.*|.*\.Malformed|.*NotSupported.*|.*SizeExceeded|ImageNotSupport.*|OperationDenied.*|IncorrectImageStatus|Unsupported.*`, provider.ErrInvalidArgument, ""),
}

// ruleOf returns the class of a code, or that of an HTTP status.
func ruleOf(code string, status int) (hint string, class error) {
	for _, r := range rules {
		if r.pattern.MatchString(code) {
			return r.hint, r.class
		}
	}
	switch {
	case status == 429 || status >= 500:
		return "", provider.ErrUnavailable
	case status == 401:
		return "", provider.ErrUnauthenticated
	case status == 403:
		return "", provider.ErrPermissionDenied
	}
	return "", provider.ErrUnknown
}

// sdkText is what the SDK writes around a message.
var sdkText = regexp.MustCompile(`^code: \d+, (.*?) request id: (\S*)$`)

// classify gives what the SDK or the connection said a class. action is as RAM
// names it.
func classify(action string, err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	var sdkErr *tea.SDKError
	var lost *url.Error
	switch {
	case errors.As(err, &sdkErr):
		return fromSDK(action, sdkErr)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w: %w", action, provider.ErrUnavailable, bare(err))
	case errors.As(err, &lost):
		return fmt.Errorf("%s: %w: %s: %w%s", action, provider.ErrUnavailable, hostOf(lost), lost.Err, connectionHint(lost.Err))
	}
	return fmt.Errorf("%s: %w: %w", action, provider.ErrUnavailable, err)
}

// bare takes the URL off an error: its query holds the user-data.
func bare(err error) error {
	if lost, ok := errors.AsType[*url.Error](err); ok {
		return lost.Err
	}
	return err
}

func hostOf(lost *url.Error) string {
	if u, err := url.Parse(lost.URL); err == nil {
		return u.Host
	}
	return "the endpoint"
}

func connectionHint(err error) string {
	if failure.Untrusted(err) {
		return "; certificates to trust: -alibabacloud-ca-file (ALIBABACLOUD_CA_FILE)"
	}
	if strings.Contains(err.Error(), "no such host") {
		return "; look at REGION, or set the endpoints"
	}
	return ""
}

func fromSDK(action string, sdkErr *tea.SDKError) error {
	message, request := dara.StringValue(sdkErr.Message), ""
	if match := sdkText.FindStringSubmatch(message); match != nil {
		message, request = match[1], match[2]
	}
	code, status := dara.StringValue(sdkErr.Code), dara.IntValue(sdkErr.StatusCode)
	hint, class := ruleOf(code, status)
	if class == provider.ErrPermissionDenied && hint == "" {
		hint = "the RAM policy of the credentials must allow " + action
	}
	return refusal(action, status, code, message, request, hint, class)
}

// refusal is what the cloud answered to an action, as RAM names it.
func refusal(action string, status int, code, message, request, hint string, class error) error {
	if request != "" {
		message += " (request " + request + ")"
	}
	if hint != "" {
		message += "; " + hint
	}
	return fmt.Errorf("%s: %w", action, &failure.Error{Status: status, Code: code, Message: message, Class: class})
}

// explain is deferred by the methods of the contract.
func explain(err *error, format string, args ...any) {
	failure.Wrap(err, failure.Classify, format, args...)
}

// Codes that the provider decides by.
const (
	codeNoInstance = "InvalidInstanceId.NotFound"
	codeNoAddress  = "InvalidAllocationId.NotFound"
	codeMismatch   = "IdempotentParameterMismatch"
	codeDryRun     = "DryRunOperation"
	codeStatus     = "IncorrectInstanceStatus"
	codeEIPStatus  = "IncorrectEipStatus"
	codeTokenGone  = "InvalidSecurityToken.Expired"
	codeNonceUsed  = "SignatureNonceUsed"
	codeNoBalancer = "InvalidLoadBalancerId.NotFound"
	codeNotRunning = "ObtainIpFail" // of an instance that is to be a server
	codeNoDisk     = "InvalidDiskId.NotFound"
	codeNoSnapshot = "InvalidSnapshotId.NotFound"
	// Of a disk of which the cloud takes no snapshot: nothing was written to it.
	codeNeverAttached = "IncorrectDiskStatus.NeverAttached"
	codeNeverUsed     = "IncorrectDiskStatus.NeverUsed"
)

// busy reports whether the resource is in the middle of something else.
func busy(err error) bool {
	var e *failure.Error
	return errors.As(err, &e) && e.Class != provider.ErrInvalidArgument && (strings.HasPrefix(e.Code, codeStatus) || strings.HasPrefix(e.Code, "IncorrectDiskStatus") || e.Code == "DiskError" || strings.HasSuffix(e.Code, ".NotReady") || e.Code == codeEIPStatus || e.Code == "TaskConflict" ||
		e.Code == "OperationConflict" || slices.Contains(configuring, e.Code) || strings.HasPrefix(e.Code, "IncorrectStatus") || strings.HasSuffix(e.Code, "InvalidOperation.Conflict"))
}

// configuring are the codes of a load balancer that is in the middle of another
// change.
var configuring = []string{"BackendServer.configuring", "ServiceIsConfiguring", "ServiceIsStopping", "SystemBusy", "OperationBusy"}
