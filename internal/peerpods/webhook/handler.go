// SPDX-License-Identifier: Apache-2.0

// Package webhook is the mutating admission webhook mwebhook.peerpods.io: it
// sizes the VM of each pod of one runtime class when the pod is created. See
// docs/sizing.md.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/podsize"
)

// Path is where the webhook answers.
const Path = "/mutate-v1-pod"

// Mutator returns admission requests for pods. It keeps no state.
type Mutator struct {
	// RuntimeClass is the class whose pods run in VMs; all others pass as they are.
	RuntimeClass string
	// Slot is the extended resource of which each such pod takes one.
	Slot corev1.ResourceName
	Log  *slog.Logger
}

// Handle sizes a pod. What it refuses has code 400 if the request makes no
// sense and 422 if the pod does not.
func (m *Mutator) Handle(_ context.Context, req admission.Request) admission.Response {
	switch {
	case req.UID == "" || req.Operation == "":
		return badRequest(fmt.Errorf("the review has no request with uid and operation"))
	case req.Resource.Group != "" || req.Resource.Resource != "pods":
		return badRequest(fmt.Errorf("this webhook is for pods, not for %.80q: correct the rules of its MutatingWebhookConfiguration", req.Resource.Resource))
	case req.Operation == admissionv1.Update && req.SubResource == "":
		return m.keep(req)
	case req.Operation != admissionv1.Create || req.SubResource != "":
		return admission.Allowed("only pods that are created or annotated are of interest")
	}
	sent, err := readPod(req.Object.Raw)
	if err != nil {
		return badRequest(fmt.Errorf("the pod cannot be read: %w", err))
	}
	if class := sent.Spec.RuntimeClassName; class == nil || *class != m.RuntimeClass {
		return admission.Allowed("not of runtime class " + m.RuntimeClass)
	}
	return m.mutate(req, sent)
}

// keep refuses annotations that would not have passed when the pod was created:
// one that still waits for its VM can be annotated.
func (m *Mutator) keep(req admission.Request) admission.Response {
	before, beforeErr := readPod(req.OldObject.Raw)
	after, err := readPod(req.Object.Raw)
	if err := errors.Join(beforeErr, err); err != nil {
		return badRequest(fmt.Errorf("the pod cannot be read: %w", err))
	}
	if class := after.Spec.RuntimeClassName; class == nil || *class != m.RuntimeClass {
		return admission.Allowed("not of runtime class " + m.RuntimeClass)
	}
	if err := podsize.CheckUpdate(before.Metadata.Annotations, after.Metadata.Annotations); err != nil {
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err)
	}
	return admission.Allowed("the size of the VM stays as it is")
}

func (m *Mutator) mutate(req admission.Request, sent *sentPod) admission.Response {
	before, err := sent.pod()
	if err != nil {
		return badRequest(fmt.Errorf("the pod cannot be read: %w", err))
	}
	after := before.DeepCopy()
	size, err := podsize.Mutate(after, m.Slot)
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			fmt.Errorf("the pod's VM cannot be sized: %w", err))
	}
	ops := patch(sent, before, after)
	m.Log.Info("sized a pod", "pod", cmp.Or(req.Name, before.Name, before.GenerateName), "namespace", req.Namespace,
		"vcpus", size.VCPUs, "memory_mib", size.MemoryMiB, "gpus", size.GPUs)
	return admission.Patched("sized by requests and limits", ops...).WithWarnings(sent.warnings()...)
}

func badRequest(err error) admission.Response {
	return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err)
}

// refuse rejects the request with a reason that `kubectl` shows.
func refuse(code int32, reason metav1.StatusReason, err error) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: err.Error()},
	}}
}
