// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Cloud is one provider as far as the controller uses it. Its calls are
// bounded in time and observed, and go to the newest settings that work.
type Cloud struct {
	Name  string
	slot  *slot
	owner *Clouds
	lists *lister
}

// CanList and CanGet say which capabilities the provider has.
func (c *Cloud) CanList() bool { return has[provider.Lister](c) }

// CanGet: see CanList.
func (c *Cloud) CanGet() bool { return has[provider.Getter](c) }

// CanPower: see CanList.
func (c *Cloud) CanPower() bool { return has[provider.PowerController](c) }

// OnNode reports whether VMs are on a node of the cluster and share its processors.
func (c *Cloud) OnNode() bool { return has[provider.NodeAddresser](c) }

func has[T any](c *Cloud) bool {
	p, done, err := c.slot.use()
	if err != nil {
		return false
	}
	defer done()
	_, ok := provider.As[T](p)
	return ok
}

// Delete removes an instance. An id that the cloud can never have assigned
// counts as deleted.
func (c *Cloud) Delete(ctx context.Context, id string) error {
	err := c.call(ctx, "delete", func(ctx context.Context, p provider.Provider) error {
		return p.DeleteInstance(ctx, id)
	})
	if errors.Is(err, provider.ErrInvalidArgument) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete instance %s at provider %s: %w", id, c.Name, err)
	}
	return nil
}

// Create makes an instance. Besides those in spec it gets the tags of this cluster and of
// its key. The instance may be there with an error, too, and without its id being known.
func (c *Cloud) Create(ctx context.Context, name, key string, data cloudinit.CloudConfig, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	tags := maps.Clone(c.owner.options.Owner)
	maps.Copy(tags, spec.Tags)
	tags[provider.TagKey] = provider.TagValue(key)
	tags[provider.TagCreated] = c.owner.options.Now().UTC().Format(time.RFC3339)
	spec.Tags = tags
	var instance *provider.Instance
	err := c.call(ctx, "create", func(ctx context.Context, p provider.Provider) (err error) {
		instance, err = p.CreateInstance(ctx, name, key, data, spec)
		return err
	})
	if err == nil && instance == nil {
		err = fmt.Errorf("%w: it returned neither an instance nor an error", provider.ErrUnknown)
	}
	if err == nil {
		err = instance.Check()
	}
	if err != nil {
		return instance, fmt.Errorf("create an instance at provider %s: %w", c.Name, redact.UserData(err, data))
	}
	return instance, nil
}

// Fingerprint names the settings that the provider has now.
func (c *Cloud) Fingerprint() string {
	c.slot.configuring.Lock()
	defer c.slot.configuring.Unlock()
	text, _ := json.Marshal(c.slot.values) // map of strings: keys are sorted, and it cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Get looks up one instance; ErrNotFound also for an id that the cloud can
// never have assigned.
func (c *Cloud) Get(ctx context.Context, id string) (*provider.Instance, error) {
	var instance *provider.Instance
	err := c.call(ctx, "get", func(ctx context.Context, p provider.Provider) (err error) {
		getter, ok := provider.As[provider.Getter](p)
		if !ok {
			return provider.ErrUnimplemented
		}
		instance, err = getter.GetInstance(ctx, id)
		return err
	})
	if errors.Is(err, provider.ErrInvalidArgument) {
		err = fmt.Errorf("%w: %v", provider.ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("look up instance %s at provider %s: %w", id, c.Name, err)
	}
	return instance, nil
}

// Prices returns what an hour of an instance costs, by its type; less, or nothing, if the
// provider does not know or does not answer.
func (c *Cloud) Prices(ctx context.Context) map[string]float64 {
	prices := map[string]float64{}
	err := c.call(ctx, "types", func(ctx context.Context, p provider.Provider) error {
		lister, ok := provider.As[provider.InstanceTypeLister](p)
		if !ok {
			return nil
		}
		types, err := lister.InstanceTypes(ctx)
		for _, t := range types {
			prices[t.Name] = t.Price
		}
		return err
	})
	if err != nil {
		c.owner.options.Log.Warn("the prices of instance types are not known", "provider", c.Name, "error", err)
	}
	return prices
}

// PowerOff stops an instance, which keeps its disk and addresses.
func (c *Cloud) PowerOff(ctx context.Context, id string) error {
	err := c.call(ctx, "power-off", func(ctx context.Context, p provider.Provider) error {
		power, ok := provider.As[provider.PowerController](p)
		if !ok {
			return provider.ErrUnimplemented
		}
		return power.PowerOff(ctx, id)
	})
	if err != nil {
		return fmt.Errorf("stop instance %s at provider %s: %w", id, c.Name, err)
	}
	return nil
}

// list asks for all instances of this cluster.
func (c *Cloud) list(ctx context.Context) ([]provider.Instance, error) {
	var list []provider.Instance
	err := c.call(ctx, "list", func(ctx context.Context, p provider.Provider) (err error) {
		lister, ok := provider.As[provider.Lister](p)
		if !ok {
			return provider.ErrUnimplemented
		}
		list, err = lister.ListInstances(ctx, c.owner.options.Owner)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the instances of this cluster at provider %s: %w", c.Name, err)
	}
	return list, nil
}

func (c *Cloud) call(ctx context.Context, operation string, do func(context.Context, provider.Provider) error) error {
	p, done, err := c.slot.use()
	if err != nil {
		return err
	}
	defer done()
	o := &c.owner.options
	ctx, cancel := context.WithTimeout(ctx, o.CallTimeout)
	defer cancel()
	began := time.Now()
	err = do(ctx, p)
	o.Observe(Call{Provider: c.Name, Operation: operation, Took: time.Since(began), Err: err})
	return err
}
