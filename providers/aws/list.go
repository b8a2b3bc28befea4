// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/xmlscan"
)

// each reads all instances that the filters let through, in any state, with what a list shows of them. The SDK
// decodes all members, by encoding/xml, which takes ten times as long.
func (s *session) each(ctx context.Context, filters []types.Filter, do func(*types.Instance)) error {
	for in := (&ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(1000)}); ; {
		page := &instancePage{}
		if _, err := s.ec2().DescribeInstances(ctx, in, page.instead); err != nil {
			return err
		}
		if !page.complete { // no list is not an empty one
			return fmt.Errorf("%w: the reply to DescribeInstances was not read", provider.ErrUnavailable)
		}
		for i := range page.instances {
			do(&page.instances[i])
		}
		if page.next == "" {
			return nil
		}
		in.NextToken = &page.next
	}
}

// instancePage is a reply of DescribeInstances.
type instancePage struct {
	instances []types.Instance
	next      string
	// complete says that a reply was read to its end.
	complete bool
}

// instead is an option of a call, with which the reply goes to the page and not to the SDK.
func (p *instancePage) instead(o *ec2.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		// After it on the way to the cloud is before it on the way back.
		return stack.Deserialize.Insert(p, "OperationDeserializer", middleware.After)
	})
}

// ID implements middleware.DeserializeMiddleware.
func (p *instancePage) ID() string { return "OutriggerInstancePage" }

// HandleDeserialize implements middleware.DeserializeMiddleware.
func (p *instancePage) HandleDeserialize(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	reply, ok := out.RawResponse.(*smithyhttp.Response)
	if err != nil || !ok || reply.StatusCode/100 != 2 {
		return out, metadata, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err == nil {
		err = p.read(text)
	}
	reply.Body = io.NopCloser(strings.NewReader("<DescribeInstancesResponse/>"))
	if err != nil {
		err = fmt.Errorf("%w: read the reply: %w", provider.ErrUnavailable, err)
	}
	return out, metadata, err
}

// read reads a DescribeInstancesResponse (EC2's API reference, data type Instance).
func (p *instancePage) read(text []byte) error {
	*p = instancePage{} // of an attempt that failed
	x, is := xmlscan.New(text), false
	err := x.Each(func(root string) error {
		is = root == "DescribeInstancesResponse"
		return x.Each(func(name string) (err error) {
			switch name {
			case "nextToken":
				p.next, err = x.Text()
			case "reservationSet":
				err = x.Each(func(string) error { return x.Each(func(name string) error { return p.reservation(x, name) }) })
			}
			return err
		})
	})
	if err == nil && !is {
		err = errors.New("it is not about instances")
	}
	p.complete = err == nil
	return err
}

func (p *instancePage) reservation(x *xmlscan.Scanner, name string) error {
	if name != "instancesSet" {
		return nil
	}
	return x.Each(func(string) error {
		p.instances = append(p.instances, types.Instance{})
		i := &p.instances[len(p.instances)-1]
		return x.Each(func(name string) error { return readInstance(x, i, name) })
	})
}

// into reads the text of an element by which into is set.
func into[T ~string](x *xmlscan.Scanner, into **T) error {
	text, err := x.Text()
	value := T(text)
	*into = &value
	return err
}

func readInstance(x *xmlscan.Scanner, i *types.Instance, name string) (err error) {
	switch name {
	case "instanceId":
		return into(x, &i.InstanceId)
	case "privateIpAddress":
		return into(x, &i.PrivateIpAddress)
	case "ipAddress":
		return into(x, &i.PublicIpAddress)
	case "instanceType":
		text, err := x.Text()
		i.InstanceType = types.InstanceType(text)
		return err
	case "launchTime":
		i.LaunchTime, err = readTime(x)
	case "placement":
		i.Placement = &types.Placement{}
		return only(x, "availabilityZone", func() error { return into(x, &i.Placement.AvailabilityZone) })
	case "instanceState":
		i.State = &types.InstanceState{}
		return only(x, "name", func() error {
			text, err := x.Text()
			i.State.Name = types.InstanceStateName(text)
			return err
		})
	case "tagSet":
		return x.Each(func(string) error { return readTag(x, i) })
	case "networkInterfaceSet":
		return x.Each(func(string) error { return only(x, "attachment", func() error { return readAttachment(x, i) }) })
	}
	return err
}

// only reads one element of the current one.
func only(x *xmlscan.Scanner, wanted string, read func() error) error {
	return x.Each(func(name string) error {
		if name == wanted {
			return read()
		}
		return nil
	})
}

func readTag(x *xmlscan.Scanner, i *types.Instance) error {
	var tag types.Tag
	err := x.Each(func(name string) error {
		switch name {
		case "key":
			return into(x, &tag.Key)
		case "value":
			return into(x, &tag.Value)
		}
		return nil
	})
	i.Tags = append(i.Tags, tag)
	return err
}

func readAttachment(x *xmlscan.Scanner, i *types.Instance) error {
	a := &types.InstanceNetworkInterfaceAttachment{}
	i.NetworkInterfaces = append(i.NetworkInterfaces, types.InstanceNetworkInterface{Attachment: a})
	return x.Each(func(name string) (err error) {
		switch name {
		case "attachTime":
			a.AttachTime, err = readTime(x)
		case "deviceIndex":
			text, textErr := x.Text()
			if textErr != nil {
				return textErr
			}
			index, numberErr := strconv.ParseInt(text, 10, 32)
			a.DeviceIndex, err = sdk.Int32(int32(index)), numberErr
		}
		return err
	})
}

func readTime(x *xmlscan.Scanner) (*time.Time, error) {
	text, err := x.Text()
	if err != nil {
		return nil, err
	}
	t, err := time.Parse(time.RFC3339, text)
	return &t, err
}
