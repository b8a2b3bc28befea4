// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = time.Minute

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless the credentials get no token.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	if _, err := p.api.tokens.get(ctx); err != nil {
		return fmt.Errorf("verify: -gcp-credentials (GCP_CREDENTIALS), -gcp-credentials-file (GOOGLE_APPLICATION_CREDENTIALS): %w", err)
	}
	checks := []func() error{
		func() error { return p.verifyPermissions(ctx) },
		func() error { return p.verifyImage(ctx) },
		func() error { return p.verifyTypes(ctx) },
		func() error { return p.verifyNetwork(ctx, "network", p.cfg.Network) },
		func() error { return p.verifyNetwork(ctx, "gcp-secondary-network", p.cfg.SecondaryNetwork) },
	}
	var regions []string
	for _, zone := range p.cfg.Zones {
		checks = append(checks, func() error { return p.verifyZone(ctx, zone) })
		if region := names.RegionOf(zone); !slices.Contains(regions, region) {
			regions = append(regions, region)
		}
	}
	for _, region := range regions {
		checks = append(checks,
			func() error { return p.verifyRegion(ctx, region) },
			func() error { return p.verifySubnetwork(ctx, "subnetwork", region, p.cfg.Subnetwork) },
			func() error {
				return p.verifySubnetwork(ctx, "gcp-secondary-subnetwork", region, p.cfg.SecondarySubnetwork)
			})
	}
	return failure.Together(checks...)
}

// setting returns which flag an error is about. What does not exist is named by
// its value.
func setting(flagName, value string, err error) error {
	if errors.Is(err, provider.ErrNotFound) {
		return fmt.Errorf("%w: %w", provider.ErrNotFound, bad(flagName, "%s does not exist, or these credentials may not see it: %v", value, err))
	}
	return config.About[Config](flagName, err)
}

// verifyPermissions asks for all at once. Where the Resource Manager API is
// switched off, the other checks find out what they can.
func (p *Provider) verifyPermissions(ctx context.Context) error {
	wanted := p.permissions()
	var reply struct {
		Permissions []string `json:"permissions"`
	}
	err := p.api.rest.Send(ctx, http.MethodPost, p.api.manager+":testIamPermissions", map[string]any{"permissions": wanted}, &reply)
	if failure.HasStatus(err, http.StatusForbidden) {
		logger().Warn("the permissions cannot be checked: the Cloud Resource Manager API is switched off for the project", "error", err)
		return nil
	}
	if err != nil {
		return setting("gcp-project-id", p.cfg.Project, err)
	}
	missing := slices.DeleteFunc(wanted, func(name string) bool { return slices.Contains(reply.Permissions, name) })
	if len(missing) > 0 {
		return fmt.Errorf("%w: the credentials lack these permissions in project %s: %s", provider.ErrPermissionDenied, p.cfg.Project, strings.Join(missing, ", "))
	}
	return nil
}

// imageFeatures are what an image must say of itself for each technology.
var imageFeatures = map[string]string{"SEV": "SEV_CAPABLE", "SEV_SNP": "SEV_SNP_CAPABLE", "TDX": "TDX_CAPABLE"}

func (p *Provider) verifyImage(ctx context.Context) error {
	if p.cfg.Image == "" {
		return bad("image-name", "it is not set: every pod would have to name an image")
	}
	path, err := imagePath(p.cfg.Project, p.cfg.Image)
	if err != nil {
		return bad("image-name", "%v", err)
	}
	var img image
	if err := p.api.rest.Send(ctx, http.MethodGet, p.api.root+path, nil, &img); err != nil {
		return setting("image-name", path, err)
	}
	var errs []error
	if img.Status != "READY" {
		errs = append(errs, bad("image-name", "%s is %s and not READY", path, img.Status))
	}
	if img.SizeGB > p.cfg.RootDisk {
		errs = append(errs, bad("root-volume-size", "image %s needs %d GiB, and the disk has %d", p.cfg.Image, img.SizeGB, p.cfg.RootDisk))
	}
	if feature := imageFeatures[p.cfg.confidential()]; feature != "" && !slices.Contains(img.Features, imageFeature{feature}) {
		errs = append(errs, bad("image-name", "%s is not marked %s, which -confidential-type=%s needs", path, feature, p.cfg.confidential()))
	}
	return errors.Join(errs...)
}

func (p *Provider) verifyTypes(ctx context.Context) error {
	types, err := p.types(ctx)
	if err != nil {
		return err
	}
	_, err = instancetypes.Options{Types: types, Default: p.cfg.MachineType, Allow: p.cfg.MachineTypes, Zones: p.cfg.Zones}.Rank(provider.InstanceTypeSpec{})
	if err != nil {
		return bad("machine-type", "%v", err)
	}
	if kind := p.cfg.confidential(); !familyHas(p.cfg.MachineType, kind) {
		// Not an error: the cloud may have more by now than its pages had.
		logger().Warn("the default machine type is of a family that is not known to have this technology",
			"type", p.cfg.MachineType, "confidential", kind)
	}
	return nil
}

func (p *Provider) verifyNetwork(ctx context.Context, flagName, value string) error {
	if value == "" {
		return nil // only the second is optional
	}
	path, err := networkPath(p.cfg.Project, value)
	if err != nil {
		return bad(flagName, "%v", err)
	}
	var network struct {
		Auto bool `json:"autoCreateSubnetworks"`
	}
	if err := p.api.rest.Send(ctx, http.MethodGet, p.api.root+path, nil, &network); err != nil {
		return setting(flagName, path, err)
	}
	if flagName == "network" && !network.Auto && p.cfg.Subnetwork == "" {
		return bad("subnetwork", "network %s has no subnetworks by itself: name one", value)
	}
	return nil
}

func (p *Provider) verifySubnetwork(ctx context.Context, flagName, region, value string) error {
	if value == "" {
		return nil
	}
	path, err := subnetworkOf(region)(p.cfg.Project, value)
	if err != nil {
		return bad(flagName, "%v", err)
	}
	return setting(flagName, path, p.api.rest.Send(ctx, http.MethodGet, p.api.root+path, nil, nil))
}

func (p *Provider) verifyZone(ctx context.Context, zone string) error {
	var reply struct {
		Status string `json:"status"`
	}
	if err := p.api.get(ctx, "zones/"+zone, nil, &reply); err != nil {
		return setting("zone", zone, err)
	}
	if reply.Status == "DOWN" {
		return fmt.Errorf("%w: zone %s (-zone) is down", provider.ErrUnavailable, zone)
	}
	return setting("disk-type", p.cfg.DiskType+" in "+zone, p.api.get(ctx, "zones/"+zone+"/diskTypes/"+p.cfg.DiskType, nil, nil))
}

// verifyRegion looks whether one more instance is within the quota.
func (p *Provider) verifyRegion(ctx context.Context, region string) error {
	var reply struct {
		Quotas []struct {
			Metric string  `json:"metric"`
			Limit  float64 `json:"limit"`
			Usage  float64 `json:"usage"`
		} `json:"quotas"`
	}
	if err := p.api.get(ctx, "regions/"+region, nil, &reply); err != nil {
		return setting("zone", region, err)
	}
	wanted := []string{"INSTANCES", "CPUS"}
	if p.cfg.UsePublicIP {
		wanted = append(wanted, "IN_USE_ADDRESSES")
	}
	var errs []error
	for _, quota := range reply.Quotas {
		if slices.Contains(wanted, quota.Metric) && quota.Usage+1 > quota.Limit {
			errs = append(errs, fmt.Errorf("%w: %s in region %s: %v of %v are in use", provider.ErrQuota, quota.Metric, region, quota.Usage, quota.Limit))
		}
	}
	return errors.Join(errs...)
}

// permissionList is what the credentials must be allowed with any configuration. Which call needs
// which is on Google's page of each method ("IAM Permissions").
//
//go:embed permissions.txt
var permissionList string

// permissions returns what the credentials must be allowed with this configuration.
func (p *Provider) permissions() []string {
	list := strings.Fields(permissionList)
	if p.cfg.UsePublicIP || p.cfg.SecondaryNetwork != "" {
		list = append(list, "compute.subnetworks.useExternalIp")
	}
	if strings.Contains(p.cfg.Image, "/family/") {
		list = append(list, "compute.images.getFromFamily")
	}
	if len(p.cfg.NetworkTags) > 0 {
		list = append(list, "compute.instances.setTags")
	}
	if len(p.cfg.Tags) > 0 {
		list = append(list, "compute.instances.createTagBinding")
	}
	return list
}
