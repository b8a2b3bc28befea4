// SPDX-License-Identifier: Apache-2.0

package intercept_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/kit/intercept"
)

// importer is the fake with images, and waits in Teardown; its creations leave
// something behind.
type importer struct{ *fake.Cloud }

func (importer) TeardownContext(context.Context) error { return nil }

func (importer) ImportImage(context.Context, provider.ImageSource, func(provider.ImageProgress)) (string, error) {
	return "image", nil
}

var errNoAnswer = errors.New("no answer")

func (importer) CreateInstance(context.Context, string, string, cloudinit.CloudConfigGenerator, provider.InstanceTypeSpec) (*provider.Instance, error) {
	return &provider.Instance{ID: "remains"}, errNoAnswer
}

// onlyLister is a fake without its other capabilities.
type onlyLister struct {
	provider.Provider
	provider.Lister
}

// TestEveryMethodIsIntercepted calls each method that has a context, by reflection, so
// that a new one of the contract cannot be forgotten.
func TestEveryMethodIsIntercepted(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	refused := errors.New("refused")
	p := intercept.Provider(importer{cloud}, func(_ context.Context, call intercept.Call, _ func() error) error {
		got = call.Method
		return refused
	})
	for _, capability := range []any{
		(*provider.Provider)(nil), (*provider.Lister)(nil), (*provider.Getter)(nil), (*provider.ConsoleReader)(nil), (*provider.PowerController)(nil),
		(*provider.InstanceTypeLister)(nil), (*provider.NodeAddresser)(nil), (*provider.LoadBalancerController)(nil), (*provider.DiskController)(nil),
		(*provider.DiskSnapshotter)(nil), (*provider.ImageImporter)(nil),
		(*provider.ContextVerifier)(nil), (*provider.ContextCloser)(nil),
	} {
		kind := reflect.TypeOf(capability).Elem()
		if !reflect.TypeOf(p).Implements(kind) {
			t.Errorf("%s is not implemented", kind)
			continue
		}
		for i := range kind.NumMethod() {
			name := kind.Method(i).Name
			method := reflect.ValueOf(p).MethodByName(name)
			if method.Type().NumIn() == 0 {
				continue // has no context
			}
			in := []reflect.Value{reflect.ValueOf(t.Context())}
			for j := 1; j < method.Type().NumIn(); j++ {
				in = append(in, reflect.Zero(method.Type().In(j)))
			}
			got = ""
			out := method.Call(in)
			if err, _ := out[len(out)-1].Interface().(error); got != name || !errors.Is(err, refused) {
				t.Errorf("%s: the function was told %q; error %v", name, got, err)
			}
		}
	}
}

func open(t *testing.T, wrap func(*fake.Cloud) provider.Provider) provider.Provider {
	t.Helper()
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return intercept.Provider(wrap(cloud), func(_ context.Context, _ intercept.Call, next func() error) error { return next() })
}

func TestRemainsComeWithTheError(t *testing.T) {
	p := open(t, func(c *fake.Cloud) provider.Provider { return importer{c} })
	made, err := p.CreateInstance(t.Context(), "pod", "k", nil, provider.InstanceTypeSpec{})
	if !errors.Is(err, errNoAnswer) || made == nil || made.ID != "remains" {
		t.Errorf("%v, %v; want the error and what remains", made, err)
	}
}

func TestCapabilitiesAreThoseOfTheProvider(t *testing.T) {
	p := open(t, func(c *fake.Cloud) provider.Provider { return onlyLister{c, c} })
	if got := provider.Capabilities(p); !slices.Equal(got, []provider.Capability{provider.CapabilityList}) {
		t.Errorf("capabilities %v; want Lister alone", got)
	}
	if _, ok := provider.As[provider.ImageImporter](p); ok {
		t.Error("it says that it imports images")
	}
	if _, err := p.(provider.Getter).GetInstance(t.Context(), "i"); !errors.Is(err, provider.ErrUnimplemented) {
		t.Errorf("a capability that is not there: %v", err)
	}
	if _, ok := provider.As[provider.ImageImporter](open(t, func(c *fake.Cloud) provider.Provider { return importer{c} })); !ok {
		t.Error("it does not say that it imports images")
	}
}
