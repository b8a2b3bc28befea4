// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/outrigger/outrigger/provider"
)

// vcpuQuotas are EC2's quotas of virtual CPUs (EC2 user guide, "Amazon EC2
// instance type quotas"), of families by the letters that begin their names.
var vcpuQuotas = []struct {
	families       []string
	onDemand, spot string
}{
	{[]string{"a", "c", "d", "h", "i", "m", "r", "t", "z"}, "L-1216C47A", "L-34B43A08"},
	{[]string{"g", "vt"}, "L-DB2E81BA", "L-3819A6DF"},
}

// vcpuQuota returns the code of the quota that a type counts in; none is known
// here of other families.
func vcpuQuota(instanceType string, spot bool) string {
	family := instanceType[:max(0, strings.IndexAny(instanceType, "0123456789-."))]
	for _, row := range vcpuQuotas {
		if slices.Contains(row.families, family) && spot {
			return row.spot
		} else if slices.Contains(row.families, family) {
			return row.onDemand
		}
	}
	return ""
}

// vcpus compares the quota of virtual CPUs with what runs: room for one more VM
// of the standard type is the least.
func (v *verifier) vcpus(ctx context.Context) {
	standard, needed := v.standard.Name, v.standard.VCPUs
	code := vcpuQuota(standard, v.p.cfg.Spot)
	if code == "" {
		return
	}
	asking, cancel := context.WithTimeout(ctx, v.p.timing.quota)
	defer cancel()
	out, err := v.s.quota(asking, &servicequotas.GetServiceQuotaInput{ServiceCode: sdk.String("ec2"), QuotaCode: &code})
	err = classify("verify the quota of virtual CPUs", err)
	switch {
	case errors.Is(err, provider.ErrUnavailable), errors.Is(err, provider.ErrNotFound):
		slog.Warn("The quota of virtual CPUs cannot be looked at", "provider", Name, "error", err)
		return
	case err != nil:
		v.add(err)
		return
	case out.Quota == nil || out.Quota.Value == nil:
		return
	}
	used, err := v.s.vcpusUsed(ctx, code, v.p.cfg.Spot)
	if err != nil {
		v.add(classify("verify the quota of virtual CPUs", err))
		return
	}
	if limit := int64(*out.Quota.Value); used+needed > limit {
		v.add(fmt.Errorf("%w: -instance-type (PODVM_INSTANCE_TYPE): %s has %d virtual CPUs, and %d of the account's %d in %s are taken: ask for more at Service Quotas, ec2, %s",
			provider.ErrQuota, standard, needed, used, limit, v.s.region, code))
	}
}

// vcpusUsed returns what counts in a quota: instances that run or begin to, of
// the quota's families and kind.
func (s *session) vcpusUsed(ctx context.Context, code string, spot bool) (int64, error) {
	list, err := s.describe(ctx, []types.Filter{filter("instance-state-name", "pending", "running")})
	if err != nil {
		return 0, err
	}
	used := int64(0)
	for _, i := range list {
		isSpot := i.InstanceLifecycle == types.InstanceLifecycleTypeSpot
		if i.CpuOptions == nil || isSpot != spot || vcpuQuota(string(i.InstanceType), isSpot) != code {
			continue
		}
		used += int64(sdk.ToInt32(i.CpuOptions.CoreCount)) * int64(sdk.ToInt32(i.CpuOptions.ThreadsPerCore))
	}
	return used, nil
}
