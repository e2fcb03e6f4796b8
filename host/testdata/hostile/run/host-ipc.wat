;; Turns on hostIPC for a pod.
;; want: GuardError: hostIPC
;; kind: Pod
(data (i32.const 0) "spec.hostIPC")
(func $bad (call $set_bool (i32.const 1) (i32.const 0) (i32.const 12) (i32.const 1)))
