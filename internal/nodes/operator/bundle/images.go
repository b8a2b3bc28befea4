// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Images are images by the keys of images.json.
type Images map[string]string

// ParseImages reads images.json: an object of strings. Keys that nobody needs
// may be there, and keys of other platforms may be missing; of a key that is
// there twice the last counts.
func ParseImages(text []byte) (Images, error) {
	var images Images
	if err := json.Unmarshal(text, &images); err != nil {
		return nil, err
	}
	if images == nil {
		return nil, errors.New("want an object, such as {\"cloudControllerManagerAWS\": \"registry/image:tag\"}")
	}
	return images, nil
}

// ErrMissedImages means that images.json lacks keys that are needed.
var ErrMissedImages = errors.New("missed images in config")

// PodSpec returns the specification of an object's pods; nil if it has none.
func PodSpec(o client.Object) *corev1.PodSpec {
	switch o := o.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	}
	return nil
}

// setImages gives the containers that bundle.yaml names their images, and
// leaves others alone, which need one of their own.
func (r *renderer) setImages(o client.Object) error {
	spec := PodSpec(o)
	if spec == nil {
		return nil
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if err := r.setImage(&list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *renderer) setImage(c *corev1.Container) error {
	known, has := r.Containers[c.Name]
	switch image := r.values.Images[known.Image]; {
	case has && image == "":
		r.missing[known.Image] = true
	case has && strings.ContainsFunc(image, unicode.IsSpace):
		return fmt.Errorf("image %s: %q is not an image: it has spaces or ends of lines", known.Image, image)
	case has:
		c.Image = image
	case c.Image == "":
		return fmt.Errorf("container %s has no image: give it one, or name its key of images.json in %s, containers.%s.image", c.Name, MetadataFile, c.Name)
	}
	return nil
}

// setProxy appends the variables of the proxy to the main containers of what
// runs in the cluster.
func (r *renderer) setProxy(o client.Object) {
	spec := PodSpec(o)
	if _, isPod := o.(*corev1.Pod); isPod || spec == nil || r.values.Proxy == nil {
		return
	}
	p := r.values.Proxy
	for i := range spec.Containers {
		c := &spec.Containers[i]
		for _, v := range []corev1.EnvVar{{Name: "HTTP_PROXY", Value: p.HTTP}, {Name: "HTTPS_PROXY", Value: p.HTTPS}, {Name: "NO_PROXY", Value: p.None}} {
			if v.Value != "" {
				c.Env = append(slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name }), v)
			}
		}
	}
}
