// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestListedAsTheSDKReads compares what both make of the same replies, of two pages.
func TestListedAsTheSDKReads(t *testing.T) {
	s := newStand(t, optionsAtOnce)
	p := s.open(t)
	create(t, p, "made")
	tags := cloudsim.OwnerTags(`a "<key>" & more`)
	s.Fill(1000, tags)
	session, err := p.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sdks, err := session.describe(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var ours []provider.Instance
	err = session.each(t.Context(), nil, func(i *types.Instance) { ours = append(ours, *session.instance(i)) })
	if err != nil || len(ours) != len(sdks) || len(ours) != 1001 {
		t.Fatalf("%d instances, the SDK has %d: %v", len(ours), len(sdks), err)
	}
	for i := range sdks {
		if want := *session.instance(&sdks[i]); !reflect.DeepEqual(ours[i], want) {
			t.Fatalf("%+v, the SDK has %+v", ours[i], want)
		}
	}
}

func TestBadPages(t *testing.T) {
	page := func(instance string) string {
		return "<DescribeInstancesResponse><reservationSet><item><instancesSet><item>" + instance + "</item></instancesSet></item></reservationSet></DescribeInstancesResponse>"
	}
	for text, ok := range map[string]bool{
		page("<instanceId>i-1</instanceId>"): true, page("<launchTime>now</launchTime>"): false, page("<instanceId>"): false, "": false,
		page("<networkInterfaceSet><item><attachment><deviceIndex>x</deviceIndex></attachment></item></networkInterfaceSet>"): false,
	} {
		p := &instancePage{}
		if err := p.read([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
