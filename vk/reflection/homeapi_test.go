// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// runAsAsked creates the provider's pod exactly as the ShadowPod specifies.
func (l *lab) runAsAsked(name string) *corev1.Pod {
	l.Helper()
	shadow := l.Present(l.Remote, "ShadowPod", l.RemoteNS, name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: shadow.GetLabels(), Annotations: shadow.GetAnnotations()}}
	require.NoError(l, runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Map(raw.Nested(shadow.Object, "spec", "pod")), &pod.Spec))
	var made *corev1.Pod
	// The create is repeated, because the service account of the namespace might not exist yet.
	l.Eventually(func() (err error) {
		made, err = l.Remote.Core.CoreV1().Pods(l.RemoteNS).Create(l.Context(), pod, metav1.CreateOptions{})
		return err
	})
	return made
}

// mounted writes the files of the projected volume that a container mounts at a path, like a kubelet of the provider,
// and returns the folder with the files. Every object to which the volume refers must exist.
func (l *lab) mounted(pod *corev1.Pod, path string) string {
	l.Helper()
	mount := slices.IndexFunc(pod.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
	if mount < 0 {
		l.Fatalf("nothing is mounted at %s", path)
	}
	volume := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == pod.Spec.Containers[0].VolumeMounts[mount].Name })
	folder := l.TempDir()
	write := func(path string, content []byte) {
		require.NoError(l, os.MkdirAll(filepath.Dir(filepath.Join(folder, path)), 0o700))
		require.NoError(l, os.WriteFile(filepath.Join(folder, path), content, 0o600))
	}
	for _, source := range pod.Spec.Volumes[volume].Projected.Sources {
		switch {
		case source.Secret != nil:
			secret := l.Present(l.Remote, "Secret", l.RemoteNS, source.Secret.Name)
			for _, item := range source.Secret.Items {
				write(item.Path, reflectiontest.Must(base64.StdEncoding.DecodeString(raw.Nested(secret.Object, "data", item.Key).(string)))(l.T))
			}
		case source.ConfigMap != nil:
			config := l.Present(l.Remote, "ConfigMap", l.RemoteNS, source.ConfigMap.Name)
			for _, item := range source.ConfigMap.Items {
				write(item.Path, []byte(raw.Nested(config.Object, "data", item.Key).(string)))
			}
		case source.DownwardAPI != nil:
			for _, item := range source.DownwardAPI.Items {
				write(item.Path, []byte(fieldOf(l.T, pod, item.FieldRef.FieldPath)))
			}
		default:
			l.Fatalf("the provider would have to make %v", source)
		}
	}
	return folder
}

// fieldOf returns a field of a pod as the downward API does: the namespace, or an annotation.
func fieldOf(t *testing.T, pod *corev1.Pod, path string) string {
	t.Helper()
	if path == "metadata.namespace" {
		return pod.Namespace
	}
	key, is := strings.CutPrefix(path, "metadata.annotations['")
	if !is {
		t.Fatalf("the volume refers to %s", path)
	}
	return pod.Annotations[strings.TrimSuffix(key, "']")]
}

// inCluster returns the configuration of a client inside the pod. It is built from the environment variables of the
// container and the files of the service account. DNS names are resolved only by the host aliases of the pod.
func (l *lab) inCluster(pod *corev1.Pod) (config *rest.Config, env map[string]string) {
	l.Helper()
	env = map[string]string{}
	for _, variable := range pod.Spec.Containers[0].Env {
		env[variable.Name] = variable.Value
	}
	addresses := map[string]string{}
	for _, alias := range pod.Spec.HostAliases {
		for _, name := range alias.Hostnames {
			addresses[name] = alias.IP
		}
	}
	files := l.mounted(pod, "/var/run/secrets/kubernetes.io/serviceaccount")
	return &rest.Config{
		Host:            "https://" + net.JoinHostPort(env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]),
		BearerTokenFile: filepath.Join(files, "token"), TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(files, "ca.crt")},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if addresses[host] == "" {
				return nil, fmt.Errorf("looking up %s: the pod has the host aliases %v", host, addresses)
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(addresses[host], port))
		},
	}, env
}

// TestAnOffloadedPodUsesTheHomeAPIServer checks that a client in an offloaded pod is configured as in its home
// cluster. It reaches the API server of the home cluster as the pod's service account, with the permissions of that
// account, until the pod is deleted.
func TestAnOffloadedPodUsesTheHomeAPIServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t), func(o *reflection.Options) {
		o.Kinds, o.FollowIPs = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceAccountKind, reflection.ConfigMapKind), true
	})
	home := reflectiontest.Must(url.Parse(l.Local.Cluster.Config().Host))(t)
	l.Options.APIServer.Port = home.Port()
	l.Options.LiqoNamespace = l.Tenant // Any namespace that no other test uses is suitable.
	l.defineIPs()
	reflectiontest.Must(l.Local.Dynamic.Resource(ipsResource).Namespace(l.Tenant).Create(t.Context(), ip("api-server", "10.96.0.1", home.Hostname()), metav1.CreateOptions{}))(t)
	l.mayLookAtPods("default")
	l.Start()
	own := l.userPod("web", vaultToken+`, {downwardAPI: {items: [{path: uid, fieldRef: {fieldPath: metadata.uid}}]}}`)
	pod := l.runAsAsked("web")
	config, env := l.inCluster(pod)
	client := reflectiontest.Must(kubernetes.NewForConfig(config))(t)

	review := reflectiontest.Must(client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	if who := review.Status.UserInfo; who.Username != "system:serviceaccount:"+l.Namespace+":default" ||
		!slices.Equal(who.Extra["authentication.kubernetes.io/pod-uid"], []string{string(own.GetUID())}) {
		t.Errorf("the API server takes the pod for %+v", who)
	}
	namespace := string(reflectiontest.Must(os.ReadFile(filepath.Join(filepath.Dir(config.BearerTokenFile), "namespace")))(t))
	seen := reflectiontest.Must(client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}))(t)
	if len(seen.Items) != 1 || seen.Items[0].UID != own.GetUID() {
		t.Errorf("the pod sees %d pods, want itself as it is at home", len(seen.Items))
	}
	if _, err := client.CoreV1().Secrets(l.Namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets without the right to: %v", err)
	}
	if uid := reflectiontest.Must(os.ReadFile(filepath.Join(l.mounted(pod, "/keys"), "uid")))(t); string(uid) != string(own.GetUID()) {
		t.Errorf("the pod takes itself for %s, its API server for %s", uid, own.GetUID())
	}
	if url := env["KUBERNETES_PORT_"+home.Port()+"_TCP"]; !strings.Contains(url, home.Port()) {
		t.Errorf("the environment is %v", env)
	}

	l.Local.DeleteNow(t, "Pod", l.Namespace, "web")
	// The token is accepted for some seconds, because the API server caches a successful authentication.
	l.Eventually(func() error {
		_, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token of a pod that is gone: %v", err)
		}
		return nil
	})
	l.Absent(l.Remote, "Secret", l.RemoteNS, "web-token")
}

// mayLookAtPods grants a service account of the namespace the permission to read pods.
func (l *lab) mayLookAtPods(account string) {
	l.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "look"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "look"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: l.Namespace, Name: account}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "look"}}
	reflectiontest.Must(l.Local.Core.RbacV1().Roles(l.Namespace).Create(l.Context(), role, metav1.CreateOptions{}))(l.T)
	reflectiontest.Must(l.Local.Core.RbacV1().RoleBindings(l.Namespace).Create(l.Context(), binding, metav1.CreateOptions{}))(l.T)
}
