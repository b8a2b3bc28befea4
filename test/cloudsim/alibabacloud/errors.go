// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// refusal is an error of the API.
type refusal struct {
	code, message string
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(code, format string, args ...any) *refusal {
	if _, ok := statuses[code]; !ok {
		panic("no such error in the table: " + code)
	}
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// statuses are the HTTP statuses of errors and where they are from: the pages
// of the API's actions at api.alibabacloud.com, "common" being those common to
// all actions. What is marked with "?" is not documented, or not found.
var statuses = map[string]struct {
	status int
	from   string
}{
	"MissingParameter":                            {400, "common"},
	"InvalidParameter":                            {400, "common"},
	"InvalidAction.NotFound":                      {404, "common"},
	"InvalidVersion":                              {400, "common"},
	"UnsupportedHTTPMethod":                       {400, "common"},
	"InvalidAccessKeyId.NotFound":                 {404, "common"},
	"MissingAccessKeyId":                          {400, "common"},
	"IncompleteSignature":                         {400, "common"},
	"SignatureDoesNotMatch":                       {400, "common"},
	"SignatureNonceUsed":                          {400, "common"},
	"InvalidTimeStamp.Expired":                    {400, "common"},
	"InvalidTimeStamp.Format":                     {400, "common"},
	"InvalidSecurityToken.Expired":                {400, "common"},
	"InvalidSecurityToken.Malformed":              {400, "common"},
	"Forbidden.RAM":                               {403, "common"},
	"NotSimulated":                                {501, "ours"},
	"DryRunOperation":                             {400, "RunInstances"},
	"InvalidRegionId.NotFound":                    {404, "RunInstances"},
	"InvalidImageId.NotFound":                     {404, "RunInstances"},
	"InvalidInstanceType.ValueNotSupported":       {400, "RunInstances"},
	"InvalidInstanceType.ZoneNotSupported":        {403, "RunInstances"},
	"InvalidVSwitchId.NotFound":                   {404, "RunInstances"},
	"InvalidSecurityGroupId.NotFound":             {404, "RunInstances"},
	"InvalidSecurityGroupId.VPCMismatch":          {400, "RunInstances"},
	"InvalidKeyPairName.NotFound":                 {404, "RunInstances"},
	"InvalidUserData.SizeExceeded":                {400, "RunInstances"},
	"InvalidUserData.Base64FormatInvalid":         {400, "RunInstances ?"},
	"InvalidClientToken.ValueNotSupported":        {400, "RunInstances"},
	"InvalidInstanceName.Malformed":               {400, "RunInstances"},
	"InvalidSystemDiskCategory.ValueNotSupported": {400, "RunInstances"},
	"InvalidSystemDiskSize":                       {400, "RunInstances"},
	"InvalidSpotStrategy":                         {400, "RunInstances"},
	"InvalidSpotPriceLimit.LowerThanPublicPrice":  {400, "RunInstances"},
	"InvalidTagKey.Malformed":                     {400, "RunInstances"},
	"InvalidTagValue.Malformed":                   {400, "RunInstances"},
	"InvalidTagCount":                             {400, "TagResources"},
	"InvalidHttpTokens.NotSupported":              {400, "RunInstances ?"},
	"InvalidParameter.Conflict":                   {400, "RunInstances"},
	"InvalidInternetChargeType.ValueNotSupported": {400, "RunInstances"},
	"InvalidSecurityOptions.NotSupported":         {400, "RunInstances ?"},
	"OperationDenied.NoStock":                     {403, "RunInstances"},
	"QuotaExceed.ElasticQuota":                    {403, "RunInstances"},
	"InsufficientBalance":                         {403, "RunInstances"},
	"IdempotentParameterMismatch":                 {400, "RunInstances ?"},
	"Idempotence.Processing":                      {400, "DeleteInstances"},
	"InvalidInstanceId.NotFound":                  {404, "DeleteInstance"},
	"IncorrectInstanceStatus":                     {403, "DeleteInstance"},
	"IncorrectInstanceStatus.Initializing":        {403, "DeleteInstance"},
	"InvalidInstanceIds.Malformed":                {400, "DescribeInstances"},
	"InvalidResourceId.NotFound":                  {404, "TagResources"},
	"InvalidResourceType.NotFound":                {404, "TagResources"},
	"InvalidAllocationId.NotFound":                {404, "AssociateEipAddress"},
	"IncorrectEipStatus":                          {400, "ReleaseEipAddress"},
	"InvalidAssociation.Duplicated":               {400, "AssociateEipAddress"},
	"InvalidOSSObject.NotFound":                   {404, "ImportImage"},
	"InvalidImageName.Duplicated":                 {400, "ImportImage"},
	"IncorrectImageStatus":                        {403, "DeleteImage"},
	"InvalidDiskCategory.NotSupported":            {403, "CreateDisk"},
	"InvalidZoneId.NotFound":                      {404, "CreateDisk"},
	"InvalidDiskSize.NotSupported":                {400, "CreateDisk ?"},
	"InvalidSnapshotId.NotFound":                  {404, "CreateDisk"},
	"InvalidSnapshotId.NotReady":                  {400, "CreateDisk ?"},
	"InvalidDiskId.NotFound":                      {404, "AttachDisk"},
	"IncorrectDiskStatus":                         {403, "AttachDisk"},
	"InstanceDiskLimitExceeded":                   {403, "AttachDisk"},
	"ResourcesNotInSameZone":                      {403, "AttachDisk"},
	"InvalidDataDiskSize.ValueNotSupported":       {400, "ResizeDisk"},
	"IncorrectDiskStatus.NeverAttached":           {403, "CreateSnapshot"},
	"IncorrectDiskStatus.CreatingSnapshot":        {403, "CreateSnapshot"},
	"SnapshotCreatedDisk":                         {403, "DeleteSnapshot ?"},
	"QuotaExceeded.Eip":                           {400, "AllocateEipAddress"},
	"InvalidLoadBalancerId.NotFound":              {404, "DeleteLoadBalancer"},
	"OperationDenied.DeleteProtectionIsOn":        {400, "DeleteLoadBalancer"},
	"BackendServer.configuring":                   {400, "AddBackendServers"},
	"BackendServerAlreadyExist":                   {400, "AddBackendServers ?"},
	"ObtainIpFail":                                {400, "AddBackendServers ?"},
	"ListenerAlreadyExists":                       {400, "CreateLoadBalancerTCPListener"},
	"ResourceNotFound.Listener":                   {404, "StartLoadBalancerListener ?"},
	"QuotaExceeded.LoadBalancer":                  {400, "CreateLoadBalancer ?"},
	"Throttling.User":                             {400, "common"},
	"ServiceUnavailable":                          {503, "common"},
	"InternalError":                               {500, "common"},
	"EntityNotExist.Role":                         {404, "AssumeRoleWithOIDC"},
	"AuthenticationFail.NoPermission":             {403, "AssumeRoleWithOIDC"},
	"AuthenticationFail.OIDCToken.Expired":        {400, "AssumeRoleWithOIDC"},
	"AuthenticationFail.OIDCToken.Invalid":        {400, "AssumeRoleWithOIDC"},
	"InvalidParameter.OIDCProviderArn":            {400, "AssumeRoleWithOIDC"},
	"InvalidParameter.DurationSeconds":            {400, "AssumeRoleWithOIDC"},
	"InvalidParameter.RoleSessionName":            {400, "AssumeRoleWithOIDC"},
}

// answerError writes an error as the API does.
func answerError(out http.ResponseWriter, request, code, message string, status int) {
	if status == 0 {
		status = statuses[code].status
	}
	body := errorBody(code, message)
	body["RequestId"] = request
	answerJSON(out, status, body)
}

func errorBody(code, message string) map[string]any {
	return map[string]any{
		"HostId": "127.0.0.1", "Code": code, "Message": message,
		"Recommend": "https://api.alibabacloud.com/troubleshoot?q=" + code,
	}
}

func answerJSON(out http.ResponseWriter, status int, body map[string]any) {
	out.Header().Set("Content-Type", "application/json;charset=utf-8")
	out.WriteHeader(status)
	// The connection may be gone, which is the client's affair.
	_ = json.NewEncoder(out).Encode(body)
}
