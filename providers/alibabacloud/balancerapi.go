// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	client "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/models"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
)

// The API of Classic Load Balancer, at
// https://www.alibabacloud.com/help/en/slb/classic-load-balancer/developer-reference/.
// Its calls are few and made without the module that has models for all, 28,000
// lines of them: signing and errors are those of the SDK's core.
const slbVersion = "2014-05-15"

// slbCentral are regions whose endpoint has no region in its name (page "Endpoints").
var slbCentral = []string{
	"cn-qingdao", "cn-beijing", "cn-hangzhou", "cn-shanghai", "cn-shenzhen", "cn-hongkong", "ap-southeast-1", "us-east-1", "us-west-1",
}

func (c Config) slbEndpoint() string {
	switch {
	case c.SLBEndpoint != "":
		return c.SLBEndpoint
	case c.PrivateEndpoints:
		return c.host("slb")
	case slices.Contains(slbCentral, c.Region):
		return "slb.aliyuncs.com"
	}
	return "slb." + c.Region + ".aliyuncs.com"
}

// query are the parameters of a call. Empty ones are left out.
type query map[string]string

func (q query) tag(tags map[string]string) {
	for n, key := range slices.Sorted(maps.Keys(tags)) {
		prefix := "Tag." + strconv.Itoa(n+1)
		q[prefix+".Key"], q[prefix+".Value"] = key, tags[key]
	}
}

// slb makes a call and decodes its answer, unless answer is nil.
func (p *Provider) slb(ctx context.Context, action string, q query, answer any) error {
	body, err := call(ctx, p.api, "slb:"+action, p.api.slb(action), q)
	if err != nil || answer == nil {
		return err
	}
	text, err := json.Marshal(body["body"])
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("slb:%s: %w: the answer cannot be read: %w", action, provider.ErrUnknown, err)
	}
	return nil
}

// slb returns a method of the API, for one caller.
func (a *api) slb(action string) method[query, map[string]any] {
	return func(ctx context.Context, q query, options *dara.RuntimeOptions) (map[string]any, error) {
		c := new(client.Client)
		if err := c.Init(a.settings(a.cfg.slbEndpoint(), "slb")); err != nil {
			return nil, err
		}
		request := &openapi.OpenApiRequest{Query: map[string]*string{"RegionId": new(a.cfg.Region)}}
		for name, value := range q {
			if value != "" {
				request.Query[name] = new(value)
			}
		}
		return c.CallApiWithCtx(ctx, &openapi.Params{
			Action: new(action), Version: new(slbVersion), Protocol: new("HTTPS"), Pathname: new("/"), Method: new("POST"), AuthType: new("AK"),
			Style: new("RPC"), ReqBodyType: new("formData"), BodyType: new("json"),
		}, request, options)
	}
}

// clb is a load balancer as the cloud describes it (DescribeLoadBalancers).
type clb struct {
	LoadBalancerId, LoadBalancerName, Address, AddressType, VSwitchId string
	LoadBalancerSpec, InstanceChargeType, InternetChargeType          string
	Bandwidth                                                         int
	CreateTimeStamp                                                   int64
	Tags                                                              struct {
		Tag []struct{ TagKey, TagValue string }
	}
}

func (b *clb) tags() map[string]string {
	tags := map[string]string{}
	for _, tag := range b.Tags.Tag {
		tags[tag.TagKey] = tag.TagValue
	}
	return tags
}

// balancersBy returns all pages of those that are ours and were not deleted
// here, the first made first.
func (p *Provider) balancersBy(ctx context.Context, match map[string]string) ([]*clb, error) {
	const size = 100 // DescribeLoadBalancers, PageSize
	seen := map[string]bool{}
	var list []*clb
	for page := 1; ; page++ {
		q := query{"PageSize": strconv.Itoa(size), "PageNumber": strconv.Itoa(page)}
		q.tag(match)
		var answer struct {
			LoadBalancers struct{ LoadBalancer []*clb }
		}
		if err := p.slb(ctx, "DescribeLoadBalancers", q, &answer); err != nil {
			return nil, err
		}
		rows := answer.LoadBalancers.LoadBalancer
		for _, b := range rows {
			if b.key() != "" && provider.HasTags(b.tags(), match) && !seen[b.LoadBalancerId] && !p.memory.deleted.get(b.LoadBalancerId) {
				list = append(list, b)
			}
			seen[b.LoadBalancerId] = true
		}
		if len(rows) < size {
			break
		}
	}
	slices.SortFunc(list, func(a, b *clb) int {
		return cmp.Or(cmp.Compare(a.CreateTimeStamp, b.CreateTimeStamp), cmp.Compare(a.LoadBalancerId, b.LoadBalancerId))
	})
	return list, nil
}
