// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// annotationPrefixes are those of the cloud's own manager (page "Use annotations
// to configure CLB instances"); the second is its earlier one.
var annotationPrefixes = []string{"service.beta.kubernetes.io/alibaba-cloud-loadbalancer-", "service.beta.kubernetes.io/alicloud-loadbalancer-"}

func annotation(name string) string { return annotationPrefixes[0] + name }

// Values of the API (CreateLoadBalancer).
const (
	addressInternet  = "internet"
	addressIntranet  = "intranet"
	payBySpec        = "PayBySpec"
	payByUse         = "PayByCLCU"
	payByTraffic     = "paybytraffic"
	payByBandwidth   = "paybybandwidth"
	maxBalancerSpeed = 5120 // Mbit/s
)

// balancerSettings are what annotations ask for.
type balancerSettings struct {
	addressType, vswitch, spec     string
	instanceCharge, internetCharge string
	bandwidth                      int // Mbit/s; 0 without payByBandwidth
}

// known are the annotations that are read, with the values they may have; nil is
// any. Others of the prefixes are refused: what they ask for would not be kept.
var known = map[string][]string{
	"address-type":         {addressInternet, addressIntranet},
	"spec":                 {"slb.s1.small", "slb.s2.small", "slb.s2.medium", "slb.s3.small", "slb.s3.medium", "slb.s3.large"},
	"instance-charge-type": {payBySpec, payByUse},
	"charge-type":          {payByTraffic, payByBandwidth},
	"bandwidth":            nil,
	"vswitch-id":           nil,
}

func wrongAnnotation(name, format string, args ...any) error {
	return fmt.Errorf("%w: annotation %s: %s", provider.ErrInvalidArgument, annotation(name), fmt.Sprintf(format, args...))
}

// balancerSettings reads annotations. Nothing that is wrong becomes a default.
func (p *Provider) balancerSettings(annotations map[string]string) (balancerSettings, error) {
	given := map[string]string{}
	for _, full := range slices.Sorted(maps.Keys(annotations)) {
		for _, prefix := range annotationPrefixes {
			if name, ok := strings.CutPrefix(full, prefix); ok {
				if err := checkAnnotation(name, annotations[full], given); err != nil {
					return balancerSettings{}, err
				}
				given[name] = annotations[full]
			}
		}
	}
	s := balancerSettings{
		addressType: cmp.Or(given["address-type"], addressInternet), vswitch: given["vswitch-id"], spec: given["spec"],
		instanceCharge: given["instance-charge-type"], internetCharge: given["charge-type"],
	}
	if text, ok := given["bandwidth"]; ok {
		var err error
		if s.bandwidth, err = strconv.Atoi(text); err != nil || s.bandwidth < 1 || s.bandwidth > maxBalancerSpeed {
			return s, wrongAnnotation("bandwidth", "%q is not a number from 1 to %d (Mbit/s)", text, maxBalancerSpeed)
		}
	}
	return s, p.completeSettings(&s)
}

func checkAnnotation(name, value string, given map[string]string) error {
	values, ok := known[name]
	other, twice := given[name]
	switch {
	case name == "id":
		return wrongAnnotation(name, "load balancers that somebody else made are not used: leave it out, and one is made")
	case !ok:
		return wrongAnnotation(name, "it is not supported; those that are: %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	case values != nil && !slices.Contains(values, value):
		return wrongAnnotation(name, "%q is none of %s", value, strings.Join(values, ", "))
	case twice && other != value:
		return wrongAnnotation(name, "it is %q, and with the earlier name's prefix %q", other, value)
	}
	return nil
}

// completeSettings refuses what does not go together, and fills in the rest. An
// instance without a spec pays for what it uses.
func (p *Provider) completeSettings(s *balancerSettings) error {
	if s.instanceCharge == "" {
		s.instanceCharge = payByUse
		if s.spec != "" {
			s.instanceCharge = payBySpec
		}
	}
	switch {
	case s.instanceCharge == payBySpec && s.spec == "":
		return wrongAnnotation("instance-charge-type", "%s needs the annotation %s", payBySpec, annotation("spec"))
	case s.instanceCharge == payByUse && s.spec != "":
		return wrongAnnotation("spec", "%q has no effect with %s=%s", s.spec, annotation("instance-charge-type"), payByUse)
	}
	if s.addressType == addressIntranet {
		return p.completeIntranet(s)
	}
	s.internetCharge = cmp.Or(s.internetCharge, payByTraffic)
	switch {
	case s.vswitch != "":
		return wrongAnnotation("vswitch-id", "it is for %s=%s", annotation("address-type"), addressIntranet)
	case s.internetCharge == payByBandwidth && s.bandwidth == 0:
		return wrongAnnotation("charge-type", "%s needs the annotation %s", payByBandwidth, annotation("bandwidth"))
	case s.internetCharge == payByTraffic && s.bandwidth != 0:
		return wrongAnnotation("bandwidth", "it has no effect without %s=%s", annotation("charge-type"), payByBandwidth)
	case s.internetCharge == payByBandwidth && s.instanceCharge == payByUse:
		return wrongAnnotation("charge-type", "%s needs the annotation %s", payByBandwidth, annotation("spec"))
	}
	return nil
}

func (p *Provider) completeIntranet(s *balancerSettings) error {
	switch {
	case s.internetCharge != "":
		return wrongAnnotation("charge-type", "it is for %s=%s", annotation("address-type"), addressInternet)
	case s.bandwidth != 0:
		return wrongAnnotation("bandwidth", "it is for %s=%s", annotation("address-type"), addressInternet)
	}
	s.vswitch = cmp.Or(s.vswitch, p.cfg.VSwitchIDs[0])
	if !strings.HasPrefix(s.vswitch, "vsw-") {
		return wrongAnnotation("vswitch-id", "%q is not a vSwitch such as vsw-2ze1w9aj2aonw", s.vswitch)
	}
	return nil
}

// fitBalancer changes what can be changed of one that is there, and refuses the
// rest.
func (p *Provider) fitBalancer(ctx context.Context, b *clb, pl *balancerPlan) error {
	for name, pair := range map[string][2]string{
		"address-type": {b.AddressType, pl.want.addressType}, "instance-charge-type": {cmp.Or(b.InstanceChargeType, payBySpec), pl.want.instanceCharge},
		"vswitch-id": {b.VSwitchId, pl.want.vswitch},
	} {
		if pair[0] != pair[1] && (name != "vswitch-id" || pl.want.vswitch != "") {
			return wrongAnnotation(name, "%s was made with %q and cannot get %q: delete the Service and make it again", b.LoadBalancerId, pair[0], pair[1])
		}
	}
	if pl.want.spec != "" && b.LoadBalancerSpec != pl.want.spec {
		if err := p.changeBalancer(ctx, b, "ModifyLoadBalancerInstanceSpec", query{"LoadBalancerSpec": pl.want.spec}); err != nil {
			return err
		}
	}
	if pl.want.addressType != addressInternet || b.InternetChargeType == pl.want.internetCharge && (pl.want.bandwidth == 0 || b.Bandwidth == pl.want.bandwidth) {
		return nil
	}
	change := query{"InternetChargeType": pl.want.internetCharge}
	if pl.want.bandwidth > 0 {
		change["Bandwidth"] = strconv.Itoa(pl.want.bandwidth)
	}
	return p.changeBalancer(ctx, b, "ModifyLoadBalancerInternetSpec", change)
}

func (p *Provider) changeBalancer(ctx context.Context, b *clb, action string, change query) error {
	change["LoadBalancerId"] = b.LoadBalancerId
	return p.settled(ctx, func() error { return p.slb(ctx, action, change, nil) })
}
