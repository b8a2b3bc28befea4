// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unsafe"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// session is a client of EC2 with this machine's own metadata.
type session struct {
	// client is an *ec2.Client that reflection cannot reach: through its type the linker would
	// keep all of its seven hundred calls, which are four fifths of the program.
	client    unsafe.Pointer
	blocks    blockCalls
	quota     quotaCall
	region    string
	placement placement
}

func (s *session) ec2() *ec2.Client { return (*ec2.Client)(s.client) }

// session returns the session, opening it when it is first needed: a metadata
// service that is down for a while must not keep this process from starting.
func (p *Provider) session(ctx context.Context) (*session, error) {
	return p.opened.Get(ctx, "", func() (*session, time.Time, error) {
		s, err := p.open(ctx)
		return s, time.Time{}, classify("open a session with AWS", err)
	})
}

func (p *Provider) open(ctx context.Context) (*session, error) {
	client, err := p.httpClient()
	if err != nil {
		return nil, err
	}
	base, err := p.base(ctx, client)
	if err != nil {
		return nil, err
	}
	here, err := p.discover(ctx, client, base.Region)
	if err != nil {
		return nil, err
	}
	base.Region = here.region
	base.Retryer = p.retryer
	configured := p.credentials(base)
	if configured != nil {
		base.Credentials = configured
	}
	base.Credentials = sdk.NewCredentialsCache(explained{base.Credentials, configured == nil})
	blocks := ebs.NewFromConfig(base, func(o *ebs.Options) { p.endpoint(&o.BaseEndpoint, p.cfg.BlocksEndpoint) })
	quotas := servicequotas.NewFromConfig(base, func(o *servicequotas.Options) { p.endpoint(&o.BaseEndpoint, p.cfg.QuotasEndpoint) })
	return &session{
		client: unsafe.Pointer(ec2.NewFromConfig(base, func(o *ec2.Options) { p.endpoint(&o.BaseEndpoint, p.cfg.Endpoint) })),
		blocks: blockCallsOf(blocks), quota: quotas.GetServiceQuota, region: base.Region, placement: here,
	}, nil
}

// endpoint sets the URL of a service, if it or that of all that have none is configured.
func (p *Provider) endpoint(base **string, url string) {
	if url = cmp.Or(url, p.cfg.AnyEndpoint); url != "" {
		*base = &url
	}
}

// httpClient returns one client for all calls, so that Teardown can close its
// connections.
func (p *Provider) httpClient() (*awshttp.BuildableClient, error) {
	client := awshttp.NewBuildableClient().WithTimeout(p.timing.call)
	if p.cfg.CABundle == "" {
		return client.WithTransportOptions(p.keepTransport), nil
	}
	pool, err := rest.RootsOf(p.cfg.CABundle)
	if err != nil {
		return nil, bad("aws-ca-bundle", "%v", err)
	}
	return client.WithTransportOptions(func(t *http.Transport) { t.TLSClientConfig.RootCAs = pool }, p.keepTransport), nil
}

// base returns the SDK's configuration without our credentials. It reads the SDK's
// files, and looks for credentials elsewhere, only if no setting says where they come
// from.
func (p *Provider) base(ctx context.Context, client *awshttp.BuildableClient) (sdk.Config, error) {
	if p.cfg.Profile == "" && (p.cfg.AccessKeyID != "" || p.cfg.RoleARN != "") {
		return sdk.Config{Region: p.cfg.Region, HTTPClient: client}, nil
	}
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(client), awsconfig.WithRegion(p.cfg.Region), awsconfig.WithSharedConfigProfile(p.cfg.Profile),
	}
	if p.cfg.MetadataDisabled {
		options = append(options, awsconfig.WithEC2IMDSClientEnableState(imdsDisabled))
	}
	if p.cfg.ConfigFile != "" {
		options = append(options, awsconfig.WithSharedConfigFiles([]string{p.cfg.ConfigFile}))
	}
	if p.cfg.CredentialsFile != "" {
		options = append(options, awsconfig.WithSharedCredentialsFiles([]string{p.cfg.CredentialsFile}))
	}
	base, err := awsconfig.LoadDefaultConfig(ctx, options...)
	var missing awsconfig.SharedConfigProfileNotExistError
	if errors.As(err, &missing) {
		return base, bad("aws-profile", "%v", err)
	}
	return base, err
}

// credentials returns those that are configured, or nil for the SDK's own. The
// order is that of how particular the setting is.
func (p *Provider) credentials(base sdk.Config) sdk.CredentialsProvider {
	switch {
	case p.cfg.AccessKeyID != "":
		return credentials.NewStaticCredentialsProvider(p.cfg.AccessKeyID.Reveal(), p.cfg.SecretKey.Reveal(), p.cfg.SessionToken.Reveal())
	case p.cfg.Profile != "" || p.cfg.RoleARN == "":
		return nil
	}
	client := sts.NewFromConfig(base, func(o *sts.Options) { p.endpoint(&o.BaseEndpoint, p.cfg.STSEndpoint) })
	return stscreds.NewWebIdentityRoleProvider(client, p.cfg.RoleARN, tokenFile(p.cfg.TokenFile), func(o *stscreds.WebIdentityRoleOptions) {
		o.RoleSessionName = p.cfg.SessionName
	})
}

// explained gives errors about credentials their class.
type explained struct {
	sdk.CredentialsProvider
	// searched reports whether nothing is configured, so that the SDK searches
	// its default sources.
	searched bool
}

func (e explained) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	if e.CredentialsProvider == nil {
		return sdk.Credentials{}, noCredentials(errors.New("there is no place to look"))
	}
	creds, err := e.CredentialsProvider.Retrieve(ctx)
	var api smithy.APIError
	var call *smithy.OperationError
	switch {
	case err == nil, provider.Class(err) != provider.ErrUnknown:
		return creds, err
	case errors.As(err, &api), ctx.Err() != nil, !e.searched && errors.As(err, &call): // answered by the cloud, or no answer
		return creds, classify("get credentials", err)
	case e.searched:
		return creds, noCredentials(err)
	}
	return creds, fmt.Errorf("get credentials: %w: %w", provider.ErrUnauthenticated, err)
}

func noCredentials(err error) error {
	return fmt.Errorf("%w: no credentials: set AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or -aws-profile (AWS_PROFILE): %w", provider.ErrUnauthenticated, err)
}

// tokenFile is read again each time, since the kubelet renews it.
type tokenFile string

// GetIdentityToken implements stscreds.IdentityTokenRetriever.
func (f tokenFile) GetIdentityToken() ([]byte, error) {
	token, err := stscreds.IdentityTokenFile(f).GetIdentityToken()
	if err != nil {
		return nil, fmt.Errorf("%w: AWS_WEB_IDENTITY_TOKEN_FILE: %w", provider.ErrUnauthenticated, err)
	}
	return token, nil
}

// retryer returns the SDK's retryer with two rules for EC2. A call that was refused
// for lack of capacity is not repeated, although its status is 500. A call that was
// refused because of a wrong clock is repeated: the SDK has learned the cloud's time
// from the refusal.
func (p *Provider) retryer() sdk.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 5
		o.MaxBackoff = p.timing.retryMax
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(retryable)}, o.Retryables...)
	})
}

func retryable(err error) sdk.Ternary {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return sdk.UnknownTernary
	}
	class := classOf(api.ErrorCode())
	switch {
	case class == provider.ErrCapacity, class == provider.ErrQuota:
		return sdk.FalseTernary
	case api.ErrorCode() == "RequestExpired":
		return sdk.TrueTernary
	}
	return sdk.UnknownTernary
}

// blockCalls are those of the EBS direct APIs that are used, and quotaCall that of Service
// Quotas: with the clients in their place the linker would keep all of their calls.
type (
	blockCalls struct {
		StartSnapshot    blockCall[ebs.StartSnapshotInput, ebs.StartSnapshotOutput]
		PutSnapshotBlock blockCall[ebs.PutSnapshotBlockInput, ebs.PutSnapshotBlockOutput]
		CompleteSnapshot blockCall[ebs.CompleteSnapshotInput, ebs.CompleteSnapshotOutput]
	}
	blockCall[In, Out any] func(context.Context, *In, ...func(*ebs.Options)) (*Out, error)
	quotaCall              func(context.Context, *servicequotas.GetServiceQuotaInput, ...func(*servicequotas.Options)) (*servicequotas.GetServiceQuotaOutput, error)
)

func blockCallsOf(client *ebs.Client) blockCalls {
	return blockCalls{StartSnapshot: client.StartSnapshot, PutSnapshotBlock: client.PutSnapshotBlock, CompleteSnapshot: client.CompleteSnapshot}
}
