// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/tags"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// maxUserData is what the API's model says of userData: 63 K, of base64.
const maxUserData = 63 << 10

const (
	namePrefix = "podvm-"
	// maxName is what the workspace's page allows a server's name.
	maxName = 47
)

// suffixOf returns the end of the names of a key's instances. No other instance has
// it.
func suffixOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "-" + hex.EncodeToString(sum[:8])
}

// nameOf returns podvm-<pod>-<hash of the key>.
func nameOf(podName, key string) string {
	suffix := suffixOf(key)
	pod := strings.TrimSuffix(provider.InstanceName(podName, suffix[1:]), "-"+suffix[1:9])
	if room := maxName - len(suffix); len(pod) > room {
		pod = pod[:room]
	}
	return strings.TrimRight(pod, "-") + suffix
}

// CreateInstance implements provider.Provider. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (made *provider.Instance, err error) {
	defer explain(&err, "create instance %s", nameOf(podName, sandboxID))
	body, err := p.body(podName, sandboxID, cloudConfig, spec)
	if err != nil {
		return nil, err
	}
	ctx, sending, end, err := p.begin(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	defer end()
	return p.findOrMake(ctx, sandboxID, body, sending)
}

// begin has one call at a time make something of a key. The next begins when the call has ended and it is known what the
// requests that it counts in sending have made.
func (p *Provider) begin(ctx context.Context, key string) (_ context.Context, sending *sync.WaitGroup, end func(), err error) {
	ctx, done := p.api.life.Begin(ctx)
	unlock, err := p.locks.Take(ctx, key)
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	sending = new(sync.WaitGroup)
	return ctx, sending, func() {
		go func() {
			sending.Wait()
			unlock()
			done()
		}()
	}, nil
}

// body returns the whole request.
func (p *Provider) body(podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*newVM, error) {
	s, err := p.cfg.sizeOf(spec)
	if err != nil {
		return nil, err
	}
	image := cmp.Or(spec.Image, p.cfg.Image)
	if !token.MatchString(image) {
		return nil, fmt.Errorf("%w: image %q: want an id", provider.ErrInvalidArgument, image)
	}
	text, err := userdata.Generate(cloudConfig)
	if err != nil {
		return nil, err
	}
	userData := base64.StdEncoding.EncodeToString([]byte(text))
	if len(userData) > maxUserData {
		return nil, fmt.Errorf("%w: the user-data has %d bytes in base64 and Power Virtual Server takes %d", provider.ErrInvalidArgument, len(userData), maxUserData)
	}
	owned := tags.Merge(p.cfg.Tags, spec.Tags, map[string]string{provider.TagKey: key})
	return &newVM{
		ServerName: nameOf(podName, key), ImageID: image, Memory: s.memory, Processors: s.processors,
		ProcType: p.cfg.ProcessorType, SysType: s.system, Networks: []networkRef{{p.cfg.Network}},
		KeyPairName: p.cfg.SSHKey, UserData: userData, UserTags: encodeTags(owned), StoragePoolAffinity: new(false),
	}, nil
}

// findOrMake returns an instance, also beside an error, when the caller may
// have something to delete. It looks again after it has made one: another
// process may have done so at the same time.
func (p *Provider) findOrMake(ctx context.Context, key string, body *newVM, sending *sync.WaitGroup) (*provider.Instance, error) {
	existing, err := p.only(ctx, key)
	if err != nil {
		return nil, err
	}
	if existing == nil {
		made, err := p.make(ctx, body, sending)
		if err != nil {
			return nil, err
		}
		if existing, err = p.only(ctx, key); err != nil {
			return &provider.Instance{ID: made.ID}, err
		}
		if existing == nil {
			existing = made
		}
	}
	return p.settle(ctx, existing.ID)
}

// only returns the instance of a key. Had several processes made one each,
// which only happens when neither saw the other's, the first stays: whoever
// looks alone sees that one, and whoever looks later chooses it too.
func (p *Provider) only(ctx context.Context, key string) (*vm, error) {
	list, err := p.list(ctx, func(name string) bool { return strings.HasSuffix(name, suffixOf(key)) })
	list = slices.DeleteFunc(list, func(v *vm) bool {
		return decodeTags(v.UserTags)[provider.TagKey] != key || v.state() == provider.StateDeleting
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	slices.SortFunc(list, func(a, b *vm) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	for _, double := range list[1:] {
		logger().Warn("two instances of one sandbox: one is removed", "instance", double.ID, "sandbox", key)
		if err := p.remove(ctx, double.ID); err != nil {
			return nil, err
		}
	}
	return list[0], nil
}

// make sends the request. Nothing reports whether a request that was given up
// is still about to make a VM, so it goes on when ctx ends, and sending tells
// when it is over.
func (p *Provider) make(ctx context.Context, body *newVM, sending *sync.WaitGroup) (*vm, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrUnavailable, context.Cause(ctx))
	}
	sending.Add(1)
	made, err := lifetime.Outlive(ctx, func() (made []vm, err error) {
		defer sending.Done()
		err = p.api.sendToEnd(ctx, http.MethodPost, p.api.path("/pvm-instances"), body, &made)
		return made, err
	})
	return p.accepted(body, made, err)
}

// accepted reads the answer to a creation.
func (p *Provider) accepted(body *newVM, made []vm, err error) (*vm, error) {
	if err == nil && len(made) != 1 {
		err = fmt.Errorf("%w: the cloud answered %d instances", provider.ErrUnknown, len(made))
	}
	if err == nil {
		return &made[0], nil
	}
	if class := provider.Class(err); class == provider.ErrInvalidArgument || class == provider.ErrNotFound {
		err = fmt.Errorf("image %s (-image-id), network %s (-network-id), key %q (-ssh-key), %s: %w",
			body.ImageID, p.cfg.Network, body.KeyPairName, size{body.SysType, body.Processors, body.Memory}, err)
	}
	return nil, err
}

// errGone means that an instance went away while it was being made.
var errGone = fmt.Errorf("%w: it was deleted while it was being made", provider.ErrUnavailable)

// settle waits for the address. A VM that failed, or has no address in time, is
// removed; when that fails too, it is answered beside the error.
func (p *Provider) settle(ctx context.Context, id string) (*provider.Instance, error) {
	limited, stop := context.WithTimeout(ctx, p.cfg.BuildTimeout)
	defer stop()
	var answer *provider.Instance
	err := p.wait.Until(limited, func() (done bool, err error) {
		answer, err = p.progress(limited, id)
		return answer != nil, err
	})
	left := &provider.Instance{ID: id}
	switch {
	case err == nil:
		return answer, nil
	case errors.Is(err, errGone):
		return nil, err
	case ctx.Err() != nil: // the caller has no more time, and may come again
		return left, fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	case limited.Err() != nil:
		err = fmt.Errorf("%w: no address within %v (-powervs-build-timeout, POWERVS_BUILD_TIMEOUT)", provider.ErrUnavailable, p.cfg.BuildTimeout)
	case !errors.Is(err, errFailed):
		return left, err
	}
	if removeErr := p.remove(ctx, id); removeErr != nil {
		return left, fmt.Errorf("%w; and it cannot be removed: %v", err, removeErr)
	}
	return nil, err
}

// errFailed means that the cloud gave up on a VM.
var errFailed = errors.New("the VM failed")

// progress returns the instance once it has its address.
func (p *Provider) progress(ctx context.Context, id string) (*provider.Instance, error) {
	v, err := p.getVM(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case v == nil:
		return nil, errGone
	case v.status() == statusError:
		return nil, fmt.Errorf("%w: %w: %s", cmp.Or(classOfWords(v.failure()), provider.ErrUnavailable), errFailed, v.failure())
	}
	i, err := p.answer(ctx, v)
	if err != nil || len(i.IPs) == 0 && i.State != provider.StateStopped {
		return nil, err
	}
	return i, nil
}
