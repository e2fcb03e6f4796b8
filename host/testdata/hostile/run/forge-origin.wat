;; Says that the object comes from another cluster.
;; want: GuardError: origin
(data (i32.const 0) "metadata.labels[offloading.liqo.io/origin]")
(data (i32.const 128) "somebody")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 42) (i32.const 128) (i32.const 8)))
