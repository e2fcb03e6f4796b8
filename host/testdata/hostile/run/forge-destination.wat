;; Says that the object is for another cluster.
;; want: GuardError: destination
(data (i32.const 0) "metadata.labels[offloading.liqo.io/destination]")
(data (i32.const 128) "somebody")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 47) (i32.const 128) (i32.const 8)))
