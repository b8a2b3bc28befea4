// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
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

func podTemplate(o client.Object) *corev1.PodTemplateSpec {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	}
	return nil
}

// PodSpec returns the specification of an object's pods; nil if it has none.
func PodSpec(o client.Object) *corev1.PodSpec {
	if pod, is := o.(*corev1.Pod); is {
		return &pod.Spec
	}
	if t := podTemplate(o); t != nil {
		return &t.Spec
	}
	return nil
}

// setEnv replaces a variable of a container.
func setEnv(c *corev1.Container, name, value string) {
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
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
	t, p := podTemplate(o), r.values.Proxy
	if t == nil || p == nil {
		return
	}
	for i := range t.Spec.Containers {
		for _, v := range [][2]string{{"HTTP_PROXY", p.HTTP}, {"HTTPS_PROXY", p.HTTPS}, {"NO_PROXY", p.None}} {
			if v[1] != "" {
				setEnv(&t.Spec.Containers[i], v[0], v[1])
			}
		}
	}
}

// Identity is how managers authenticate at their cloud without a Secret.
type Identity struct {
	// Annotations are of the managers' ServiceAccounts, PodLabels of their pods:
	// what a cloud's webhook looks for.
	Annotations, PodLabels map[string]string
	// Audience, if not empty, is the audience of IdentityToken.
	Audience string
	// Seconds are how long a token is good; an hour if 0. The kubelet gets a new one
	// in time.
	Seconds int64
	// Environment are further variables of the managers.
	Environment map[string]string
}

// IdentityToken is the file with the token of the pod's ServiceAccount.
const IdentityToken = "/var/run/secrets/cloud-identity/token"

const (
	identityVolume = "cloud-identity"
	// shortest is what an API server lets a token live at least.
	shortest = 600
	anHour   = 3600
)

// Validate returns what is wrong, by the field's name.
func (i *Identity) Validate() error {
	if i == nil {
		return nil
	}
	faults := failure.Faults{
		apivalidation.ValidateAnnotations(i.Annotations, field.NewPath("annotations")).ToAggregate(),
		metav1validation.ValidateLabels(i.PodLabels, field.NewPath("podLabels")).ToAggregate(),
	}
	for _, name := range slices.Sorted(maps.Keys(i.PodLabels)) {
		faults.AddIf(name == "k8s-app" || strings.HasPrefix(name, "infrastructure.openshift.io/"), "podLabels: %s is how pods are found", name)
	}
	for _, name := range slices.Sorted(maps.Keys(i.Environment)) {
		problems := validation.IsEnvVarName(name)
		faults.AddIf(len(problems) > 0, "environment: %q: %s", name, strings.Join(problems, "; "))
	}
	faults.AddIf(i.Seconds != 0 && i.Seconds < shortest, "expirationSeconds %d: want at least %d", i.Seconds, shortest)
	faults.AddIf(i.Seconds != 0 && i.Audience == "", "expirationSeconds: without audience there is no token")
	return errors.Join(faults...)
}

// setIdentity puts an identity into what has one.
func (r *renderer) setIdentity(o client.Object) {
	i := r.values.Identity
	if i == nil {
		return
	}
	if account, is := o.(*corev1.ServiceAccount); is {
		account.Annotations = labels.Merge(account.Annotations, i.Annotations)
	}
	if t := podTemplate(o); t != nil {
		i.setPods(t)
	}
}

func (i *Identity) setPods(of *corev1.PodTemplateSpec) {
	isManager := func(c corev1.Container) bool { return c.Name == Manager || c.Name == NodeManager }
	if !slices.ContainsFunc(of.Spec.Containers, isManager) {
		return
	}
	of.Labels = labels.Merge(of.Labels, i.PodLabels)
	if i.Audience != "" {
		token := &corev1.ServiceAccountTokenProjection{Audience: i.Audience, ExpirationSeconds: ptr.To(cmp.Or(i.Seconds, anHour)), Path: path.Base(IdentityToken)}
		of.Spec.Volumes = append(of.Spec.Volumes, corev1.Volume{Name: identityVolume, VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: token}}},
		}})
	}
	for n := range of.Spec.Containers {
		if c := &of.Spec.Containers[n]; isManager(*c) {
			i.setContainer(c)
		}
	}
}

func (i *Identity) setContainer(c *corev1.Container) {
	if i.Audience != "" {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: identityVolume, MountPath: path.Dir(IdentityToken), ReadOnly: true})
	}
	for _, name := range slices.Sorted(maps.Keys(i.Environment)) {
		setEnv(c, name, i.Environment[name])
	}
}
