// SPDX-License-Identifier: Apache-2.0

package nocloud

// What a hypervisor and a guest agree on about VMs that are saved once they
// have booted, and restored for many pods. The guest's part is in
// internal/guest/guestinit, the image's in internal/guest/image.
const (
	// TemplateArg on the kernel's command line has a guest boot as far as VMs do
	// that have no identity yet, and wait for a seed.
	TemplateArg = "outrigger.template"
	// TemplateReady is what such a guest prints on its console when it waits.
	TemplateReady = "ready to be saved: waiting for a seed"
	// TemplateMark is the first file in the initramfs of a guest that knows all this.
	TemplateMark = ".outrigger-template"
)
